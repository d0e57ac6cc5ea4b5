"""The methods: each a formula over a trace, registered by its name. Every module of this folder is imported here."""

from importlib import import_module
from pkgutil import iter_modules

for _module in iter_modules(__path__, f"{__name__}."):
    import_module(_module.name)
