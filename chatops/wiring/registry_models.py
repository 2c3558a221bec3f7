"""The models of the registries in force, and what a turn has to know of them."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from difflib import get_close_matches
from urllib.parse import urlsplit

from chatops.domain.errors import ConfigError
from chatops.domain.model import ModelTarget
from chatops.models.memory import known_price, memory_of
from chatops.policy.registry import ModelSpec, ModelType, Registries, RoleSpec
from chatops.policy.registry_checks import DEFAULT_MODEL, model_named, model_problem, named_model_problem
from chatops.wiring.configuration import Configuration
from chatops.wiring.stored import Settings

DEFAULT_MODEL_KEY = "default_model"
"""Setting for the model that ``default`` means in a role."""
FALLBACK_MODEL = "demo"
"""Model that `default` means until the user has chosen one."""


class RegistryModels:
    """The part of `RegistryRights` that is about models."""

    def __init__(self, configuration: Callable[[], Configuration], settings: Callable[[], Settings]) -> None:
        """Look nothing up yet: `settings` are costly to create."""
        self._configuration = configuration
        self._settings = settings

    def model(self, name: str) -> ModelSpec | None:
        """Return a model by name. The site's definition comes before the user's, so that it cannot be redirected."""
        return model_named(name, registries=self._configuration().registries)

    def models(self) -> tuple[ModelSpec, ...]:
        """Return all models of the registries and other models of their servers that are in use, each name once."""
        known = self._configuration().known
        names = [model.name for registry in known for model in registry.models]
        names += [name for registry in known for role in registry.roles for name in role.models]
        specs = (self.model(name) for name in dict.fromkeys((*names, self._settings().get(DEFAULT_MODEL_KEY) or "")))
        return tuple(spec for spec in specs if spec is not None)

    def is_demo(self, model: str) -> bool:
        """Return True if `model` is the built-in demo."""
        spec = self.model(model)
        return spec is not None and spec.type is ModelType.DEMO

    def default_model(self) -> str:
        """Return the user's stored choice, else the demo."""
        return self._default_model(self._configuration().registries)

    def _default_model(self, registries: Registries) -> str:
        spec = model_named(self._settings().get(DEFAULT_MODEL_KEY) or FALLBACK_MODEL, registries=registries)
        return FALLBACK_MODEL if spec is None else spec.name

    def check_model(self, name: str) -> None:
        """Raise ConfigError for a model that can never answer: pinned, it could only fail."""
        spec = self.model(name)
        if spec is not None and (why := model_problem(spec)):
            raise ConfigError(f"{name} is not available here: it {why}.", advice="The model stays as it was.")

    def choose_model(self, name: str) -> bool:
        """Make this model the user's `default` from now on. Return False if it is that already."""
        is_new = self._settings().get(DEFAULT_MODEL_KEY) != name
        self._settings().set(DEFAULT_MODEL_KEY, name)
        return is_new

    def responder(self, named: str, registries: Registries) -> ModelTarget | None:
        """Return the model that words the last answer of a role, if it is `named` and can."""
        if not named or named_model_problem(named, registries=registries):
            return None
        return self._model_target(named, registries)

    def model_targets(self, role: RoleSpec, pin: str, registries: Registries) -> tuple[ModelTarget, ...]:
        """Return the models of a role, the first one and its backups, or the pinned one alone; `pin` may be empty.

        Raises ConfigError for an unknown pinned one.
        """
        if pin and model_named(pin, registries=registries) is None:
            names = [model.name for model in self.models()]
            near = get_close_matches(pin, names, n=1)
            hint = f"Did you mean {near[0]}?" if near else f"Models here: {', '.join(names)}."
            raise ConfigError(f"There is no model {pin!r}.", advice=hint)
        # Those that cannot answer are left out; `registry_warnings` names them.
        able = [name for name in role.models if not named_model_problem(name, registries=registries)]
        wanted: Sequence[str] = (pin,) if pin else able or role.models
        names = [self._default_model(registries) if name == DEFAULT_MODEL else name for name in wanted]
        return tuple(self._model_target(name, registries) for name in dict.fromkeys(names))

    def _model_target(self, name: str, registries: Registries) -> ModelTarget:
        spec = model_named(name, registries=registries)
        if spec is None:
            # The model client reports what is missing. A backup may still answer.
            return ModelTarget(name=name, label=name)
        memory = memory_of(spec, self._settings())
        sized = ModelTarget(
            name=name,
            label=spec.label or name,
            # As an error of its server has named it, else the registry.
            context_window=spec.context_window if memory is None else memory.context_window(spec.context_window),
            # No price is looked up here.
            priced=(spec.price or (memory.price() if memory is not None else None)) is not None,
            endpoint=endpoint_of(spec),
            engine=str(spec.type),
            sees_images=spec.takes_images,
        )
        if spec.max_output_tokens is None:
            return sized
        return replace(sized, max_output_tokens=spec.max_output_tokens)

    def look_up_price(self, target: ModelTarget) -> ModelTarget:
        """Return the target with whether its price is known. That of a public provider is looked up once."""
        spec = self.model(target.name)
        if target.priced or spec is None:
            return target
        memory = memory_of(spec, self._settings())
        return replace(target, priced=memory is not None and known_price(spec, memory) is not None)


def endpoint_of(spec: ModelSpec) -> str:
    """Return where requests to a model go: the host of its server, with a path that is not the usual one."""
    if spec.type is ModelType.DEMO:
        return "the demo"
    if spec.type is ModelType.CLI:
        return f"the program {spec.command[0] if spec.command else spec.name}"
    found = urlsplit(spec.api_url)
    host, path = found.netloc.rpartition("@")[2].lower(), found.path.rstrip("/")
    return f"{host}{'' if path in ('/v1', '/api') else path}" or str(spec.type)
