"""Chat templates that know tools, in the styles of Qwen, Llama and Hermes, on the tokenizer of a bundled model."""

import copy

import torch
import transformers

from whyformer.models.loading import LoadedModel, load

# JSON lines of schemas in the system message; results are messages of the user; calls are JSON between tags.
QWEN = (
    "{%- if tools %}"
    "{{- '<|im_start|>system\n' }}"
    "{%- if messages[0].role == 'system' %}{{- messages[0].content }}{%- else %}{{- 'Help.' }}{%- endif %}"
    "{{- '\n\n# Tools\n\n<tools>' }}"
    "{%- for tool in tools %}{{- '\n' }}{{- tool | tojson }}{%- endfor %}"
    '{{- \'\n</tools>\n\nAnswer by <tool_call>\n{"name": <name>, "arguments": <object>}\n</tool_call><|im_end|>\n\' }}'
    "{%- elif messages[0].role == 'system' %}"
    "{{- '<|im_start|>system\n' + messages[0].content + '<|im_end|>\n' }}"
    "{%- endif %}"
    "{%- for message in messages %}"
    "{%- if message.role == 'user' or (message.role == 'system' and not loop.first)"
    " or (message.role == 'assistant' and not message.tool_calls) %}"
    "{{- '<|im_start|>' + message.role + '\n' + message.content + '<|im_end|>\n' }}"
    "{%- elif message.role == 'assistant' %}"
    "{{- '<|im_start|>assistant' }}"
    "{%- if message.content %}{{- '\n' + message.content }}{%- endif %}"
    "{%- for call in message.tool_calls %}"
    "{%- if call.function is defined %}{%- set call = call.function %}{%- endif %}"
    '{{- \'\n<tool_call>\n{"name": "\' + call.name + \'", "arguments": \' }}{{- call.arguments | tojson }}'
    "{{- '}\n</tool_call>' }}"
    "{%- endfor %}"
    "{{- '<|im_end|>\n' }}"
    "{%- elif message.role == 'tool' %}"
    "{%- if loop.first or messages[loop.index0 - 1].role != 'tool' %}{{- '<|im_start|>user' }}{%- endif %}"
    "{{- '\n<tool_response>\n' + message.content + '\n</tool_response>' }}"
    "{%- if loop.last or messages[loop.index0 + 1].role != 'tool' %}{{- '<|im_end|>\n' }}{%- endif %}"
    "{%- endif %}"
    "{%- endfor %}"
    "{%- if add_generation_prompt %}{{- '<|im_start|>assistant\n' }}{%- endif %}"
)
# Indented schemas in the first message of the user; texts of results as JSON; one call in a message.
LLAMA = (
    "{{- '<|begin|>' }}"
    "{%- if messages[0].role == 'system' %}{%- set system = messages[0].content | trim %}"
    "{%- set messages = messages[1:] %}{%- else %}{%- set system = '' %}{%- endif %}"
    "{{- '<|header|>system<|/header|>\n\n' + system + '<|eot|>' }}"
    "{%- if tools %}"
    "{%- set first = messages[0].content | trim %}{%- set messages = messages[1:] %}"
    '{{- \'<|header|>user<|/header|>\n\nAnswer in the format {"name": name, "parameters": values}.\n\n\' }}'
    "{%- for tool in tools %}{{- tool | tojson(indent=4) }}{{- '\n\n' }}{%- endfor %}"
    "{{- first + '<|eot|>' }}"
    "{%- endif %}"
    "{%- for message in messages %}"
    "{%- if message.role != 'tool' and 'tool_calls' not in message %}"
    "{{- '<|header|>' + message.role + '<|/header|>\n\n' + message.content | trim + '<|eot|>' }}"
    "{%- elif 'tool_calls' in message %}"
    "{%- if message.tool_calls | length != 1 %}{{- raise_exception('one call at a time') }}{%- endif %}"
    "{%- set call = message.tool_calls[0].function %}"
    '{{- \'<|header|>assistant<|/header|>\n\n{"name": "\' + call.name + \'", "parameters": \' }}'
    "{{- call.arguments | tojson }}{{- '}<|eot|>' }}"
    "{%- else %}"
    "{{- '<|header|>ipython<|/header|>\n\n' }}"
    "{%- if message.content is iterable %}{{- message.content | tojson }}"
    "{%- else %}{{- message.content }}{%- endif %}"
    "{{- '<|eot|>' }}"
    "{%- endif %}"
    "{%- endfor %}"
    "{%- if add_generation_prompt %}{{- '<|header|>assistant<|/header|>\n\n' }}{%- endif %}"
)
# Schemas in the template's own words; results in messages of their own, which end otherwise if they are the last.
HERMES = (
    "{{- '<|im_start|>system\nTools: <tools> ' }}"
    "{%- for tool in tools %}{%- set tool = tool.function %}"
    '{{- \'{"type": "function", "function": {"name": "\' + tool.name + \'", "description": "\' + tool.name + \'(\' }}'
    "{%- for key, about in tool.parameters.properties | items %}"
    "{{- key + ': ' + (about.type | string) }}{%- if not loop.last %}{{- ', ' }}{%- endif %}{%- endfor %}"
    "{{- ') - ' + tool.description + '\", \"parameters\": ' }}{{- tool.parameters | tojson }}{{- '}}' }}"
    "{%- if not loop.last %}{{- '\n' }}{%- endif %}{%- endfor %}"
    "{{- ' </tools>\n<|im_end|>\n' }}"
    "{%- for message in messages %}"
    "{%- if message.role == 'user' or message.role == 'system'"
    " or (message.role == 'assistant' and message.tool_calls is not defined) %}"
    "{{- '<|im_start|>' + message.role + '\n' + message.content + '<|im_end|>\n' }}"
    "{%- elif message.role == 'assistant' %}"
    "{{- '<|im_start|>assistant' }}"
    "{%- for call in message.tool_calls %}{%- set call = call.function %}"
    '{{- \'\n<tool_call>\n{"name": "\' + call.name + \'", "arguments": \' }}{{- call.arguments | tojson }}'
    "{{- '}\n</tool_call>' }}{%- endfor %}"
    "{{- '<|im_end|>\n' }}"
    "{%- elif message.role == 'tool' %}"
    "{%- if loop.previtem and loop.previtem.role != 'tool' %}{{- '<|im_start|>tool\n' }}{%- endif %}"
    "{{- '<tool_response>\n' }}{{- message.content }}"
    "{{- '\n</tool_response>' }}{%- if not loop.last %}{{- '\n' }}{%- endif %}"
    "{%- if loop.last or loop.nextitem.role != 'tool' %}{{- '<|im_end|>' }}{%- endif %}"
    "{%- endif %}"
    "{%- endfor %}"
    "{%- if add_generation_prompt %}{{- '<|im_start|>assistant\n' }}{%- endif %}"
)
STYLES = {"qwen": QWEN, "llama": LLAMA, "hermes": {"default": QWEN, "tool_use": HERMES}}
TOOLS = [
    {
        "type": "function",
        "function": {
            "name": "read_mail",
            "description": "Read the inbox.",
            "parameters": {"type": "object", "properties": {}},
        },
    },
    {
        "type": "function",
        "function": {
            "name": "send_money",
            "description": "Send money to an account {IBAN}.",
            "parameters": {
                "type": "object",
                "properties": {"recipient": {"type": "string"}, "amount": {"type": "number"}},
                "required": ["recipient", "amount"],
            },
        },
    },
]


def agent(style: str) -> LoadedModel:
    """A random language model with a long context, and a template of this style."""
    tokenizer = copy.deepcopy(load("mini-gpt", device="cpu").tokenizer)
    tokenizer.chat_template = STYLES[style]
    tokenizer.model_max_length = 4096
    sizes = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 2}
    config = transformers.LlamaConfig(vocab_size=len(tokenizer), max_position_embeddings=4096, **sizes)
    torch.manual_seed(0)
    return LoadedModel(transformers.LlamaForCausalLM(config).eval(), tokenizer, style)


def called(name: str, number: int = 0, /, **arguments) -> dict:
    """A message of the assistant with a call."""
    function = {"name": name, "arguments": arguments}
    return {
        "role": "assistant",
        "content": "",
        "tool_calls": [{"id": f"call{number}", "type": "function", "function": function}],
    }


def result(content: str, number: int = 0) -> dict:
    """The result of a call."""
    return {"role": "tool", "tool_call_id": f"call{number}", "content": content}
