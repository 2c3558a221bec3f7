"""The family of a model, by the names that servers give it."""

from chatops.dialects.families import DEFAULT_FORMAT, family_of
from chatops.dialects.writing import WRITABLE
from tests.support.cases import for_each


@for_each(
    ("model_name", "family", "written"),
    [
        ("qwen2.5-coder:7b", "qwen", "hermes"),
        ("Qwen/Qwen3-8B", "qwen", "hermes"),
        ("Qwen/QwQ-32B", "qwen", "hermes"),
        ("Qwen/Qwen3-Coder-30B-A3B-Instruct", "qwen", "qwen3_xml"),
        ("qwen3-coder:30b", "qwen", "qwen3_xml"),
        ("qwen3.6:27b", "qwen", "qwen3_xml"),
        ("openai/gpt-oss-20b", "gpt-oss", "harmony"),
        ("openrouter/openai/gpt-oss-120b:free", "gpt-oss", "harmony"),
        ("meta-llama/Llama-3.3-70B-Instruct", "llama", "llama3_json"),
        ("llama3.1:8b-instruct-q4_K_M", "llama", "llama3_json"),
        ("llama3.2", "llama", "pythonic"),
        ("llama3.2-vision:11b", "llama", "llama3_json"),
        ("bartowski_Llama-3.2-3B-Instruct-Q4_K_M.gguf", "llama", "pythonic"),
        ("meta-llama/Llama-4-Scout-17B-16E-Instruct", "llama", "llama4_pythonic"),
        ("llama3:8b", "llama", ""),
        ("codellama:13b", "", ""),
        ("mistralai/Devstral-Small-2507", "mistral", "mistral_v11"),
        ("mistral-small3.2:24b", "mistral", "mistral_v11"),
        ("mistralai/Mistral-Small-3.1-24B-Instruct-2503", "mistral", "mistral_v11"),
        ("mistral:7b", "mistral", "mistral_json"),
        ("mistralai/Mistral-Nemo-Instruct-2407", "mistral", "mistral_json"),
        ("deepseek-ai/DeepSeek-V3.1", "deepseek", "deepseek_v31"),
        ("deepseek-ai/DeepSeek-V3-0324", "deepseek", "deepseek_v3"),
        ("deepseek-v3.2-exp", "deepseek", "dsml_v32"),
        ("deepseek-r1:14b", "deepseek", "deepseek_v3"),
        ("deepseek-ai/DeepSeek-R1-Distill-Qwen-7B", "deepseek", "deepseek_v3"),
        ("deepseek-ai/DeepSeek-R1-Distill-Llama-70B", "deepseek", "deepseek_v3"),
        ("deepseek-coder:6.7b", "deepseek", ""),
        ("NousResearch/Hermes-4-70B", "hermes", "hermes"),
        ("NousResearch/Hermes-3-Llama-3.1-8B", "hermes", "hermes"),
        ("NousResearch/DeepHermes-3-Llama-3-8B-Preview", "hermes", "hermes"),
        ("meetkai/functionary-small-v3.1", "functionary", "llama3_function_tag"),
        ("nvidia/NVIDIA-Nemotron-Nano-9B-v2", "nemotron", "nemotron_toolcall"),
        ("nvidia/Nemotron-3-Nano-30B-A3B", "nemotron", "qwen3_xml"),
        ("nvidia/Llama-3.1-Nemotron-70B-Instruct", "nemotron", "llama3_json"),
        ("zai-org/GLM-4.6", "glm", "glm_argkey"),
        ("glm-5", "glm", "glm_argkey"),
        ("THUDM/chatglm3-6b", "", ""),
        ("moonshotai/Kimi-K2-Instruct", "kimi", "kimi_k2"),
        ("MiniMaxAI/MiniMax-M2.1", "minimax", "minimax_m2"),
        ("ibm-granite/granite-3.3-8b-instruct", "granite", "granite3"),
        ("granite4:tiny-h", "granite", "hermes"),
        ("google/gemma-3-27b-it", "gemma", ""),
        ("google/gemma-4-31b-it", "gemma", "gemma4"),
        ("google/functiongemma-270m-it", "functiongemma", "functiongemma"),
        ("microsoft/Phi-4-mini-instruct", "phi", "functools"),
        ("phi4-mini", "phi", "functools"),
        ("microsoft/phi-4", "", ""),
        ("command-r7b", "command", "cohere_action"),
        ("CohereForAI/c4ai-command-r-plus", "command", "commandr_action"),
        ("LiquidAI/LFM2-1.2B-Tool", "lfm", "lfm2"),
        ("Salesforce/Llama-xLAM-2-8b-fc-r", "xlam", "json_array"),
        ("Team-ACE/ToolACE-2-Llama-3.1-8B", "toolace", "pythonic"),
        ("MadeAgents/Hammer2.1-7b", "hammer", "json_array"),
        ("allenai/Olmo-3-7B-Instruct", "olmo", "olmo3"),
        ("ByteDance-Seed/Seed-OSS-36B-Instruct", "seed-oss", "seed_oss"),
        ("tinyllama", "", ""),
        ("", "", ""),
    ],
)
def test_a_model_is_known_by_its_name(model_name: str, family: str, written: str) -> None:
    found = family_of(model_name)
    assert (found.name, found.format) == (family, written)
    assert found.prompted == (written if written in WRITABLE else DEFAULT_FORMAT)


def test_every_family_has_a_prompted_format_that_can_be_written() -> None:
    assert DEFAULT_FORMAT in WRITABLE
    assert family_of("openai/gpt-oss-20b").prompted == DEFAULT_FORMAT


def test_only_a_model_with_another_name_for_a_tool_gets_that_name() -> None:
    llama = family_of("llama3.1")
    assert llama.their_name("web_search", {"web_search"}) == "brave_search"
    assert llama.their_name("python_exec", {"python_exec"}) == "code_interpreter"
    assert llama.their_name("web_search", {"web_search", "brave_search"}) == "web_search"
    assert llama.their_name("web_search", {"file_read"}) == "web_search"
    assert family_of("qwen3").their_name("web_search", {"web_search"}) == "web_search"
