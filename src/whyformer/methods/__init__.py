"""The methods: each a formula over a trace, registered by its name. Every module of this folder is imported here."""

from importlib import import_module
from pkgutil import iter_modules

# The order of lists; a new module comes after these.
_ORDER = "beyond_intuition states consensus attention_maps flow_routes generic gradient black_box relevance".split()

for _name in (*_ORDER, *(module.name for module in iter_modules(__path__))):
    import_module(f"{__name__}.{_name}")
