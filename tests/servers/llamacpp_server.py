"""Run llama.cpp's own HTTP server: ``python llamacpp_server.py WEIGHTS PORT KEY``, in the environment `llamacpp`.

One thread that does not poll: with more, its barriers spin on a machine with two cores.
"""

import sys
import threading

import xllamacpp

weights, port, key = sys.argv[1:]
settings = xllamacpp.CommonParams()
settings.model.path = weights
settings.model_alias = {"smollm2"}
settings.n_ctx = 8192
settings.n_parallel = 1
settings.hostnames = ["127.0.0.1"]
settings.port = int(port)
settings.api_keys = [key]
settings.use_jinja = True
for threads in (settings.cpuparams, settings.cpuparams_batch):
    threads.n_threads = 1
    threads.poll = 0
server = xllamacpp.Server(settings)
threading.Event().wait()
