"""The names of whyformer.extend and their homes."""

from .axes import head_mean as head_mean
from .backward.rules import RULES as RULES
from .benchmark.method_maps import explanations as explanations
from .benchmark.protocols import PROTOCOLS as PROTOCOLS
from .benchmark.protocols import Figure as Figure
from .benchmark.protocols import protocol as protocol
from .benchmark.shard import explained_labels as explained_labels
from .data.readers import READERS as READERS
from .data.readers import reader as reader
from .methods.registry import Method as Method
from .methods.registry import method as method
from .models.families import FAMILIES as FAMILIES
from .models.family import Family as Family
from .models.family import Stream as Stream
from .plugins import load_plugins as load_plugins
from .tracing.attribution import Attribution as Attribution
from .tracing.build import trace as trace
from .tracing.flow import flow as flow
from .tracing.reads import Reads as Reads
from .tracing.record import AttentionRecord as AttentionRecord
from .tracing.trace import Trace as Trace
