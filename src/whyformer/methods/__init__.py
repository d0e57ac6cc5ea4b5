"""Methods: formulas over a trace, registered by name. Importing this package imports all of its modules."""

from importlib import import_module
from pkgutil import iter_modules

# The order in lists; new modules come after these.
_ORDER = "beyond_intuition states consensus attention_maps flow_routes generic gradient black_box relevance".split()

for _name in (*_ORDER, *(module.name for module in iter_modules(__path__))):
    import_module(f"{__name__}.{_name}")
