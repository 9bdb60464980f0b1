"""Chat templates in the manner of those that models come with, written from their formats, and small
ones for single parts of Jinja. For chat_templates_test.py and conversations_test.py."""

CHATML = """{% for message in messages %}{{'<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>' + '\\n'}}{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"""

# The same with marks around what the assistant says.
CHATML_MARKED = """{%- for message in messages %}
    {%- if message.role == 'assistant' %}
        {{- '<|im_start|>assistant\\n' }}{% generation %}{{ message.content + '<|im_end|>' }}{% endgeneration %}{{ '\\n' }}
    {%- else %}
        {{- '<|im_start|>' + message.role + '\\n' + message.content + '<|im_end|>\\n' }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}{{- '<|im_start|>assistant\\n' }}{%- endif %}
"""

LLAMA_2 = """{% if messages[0]['role'] == 'system' %}{% set loop_messages = messages[1:] %}{% set system_message = messages[0]['content'] %}{% else %}{% set loop_messages = messages %}{% set system_message = false %}{% endif %}{% for message in loop_messages %}{% if (message['role'] == 'user') != (loop.index0 % 2 == 0) %}{{ raise_exception('Conversation roles must alternate user/assistant/user/assistant/...') }}{% endif %}{% if loop.index0 == 0 and system_message != false %}{% set content = '<<SYS>>\\n' + system_message + '\\n<</SYS>>\\n\\n' + message['content'] %}{% else %}{% set content = message['content'] %}{% endif %}{% if message['role'] == 'user' %}{{ bos_token + '[INST] ' + content.strip() + ' [/INST]' }}{% elif message['role'] == 'assistant' %}{{ ' '  + content.strip() + ' ' + eos_token }}{% endif %}{% endfor %}"""

LLAMA_3 = """{{- bos_token }}
{%- if custom_tools is defined %}
    {%- set tools = custom_tools %}
{%- endif %}
{%- if not date_string is defined %}
    {%- set date_string = "26 Jul 2024" %}
{%- endif %}
{%- if not tools is defined %}
    {%- set tools = none %}
{%- endif %}

{#- The system message, or none #}
{%- if messages[0]['role'] == 'system' %}
    {%- set system_message = messages[0]['content']|trim %}
    {%- set messages = messages[1:] %}
{%- else %}
    {%- set system_message = "" %}
{%- endif %}

{{- "<|start_header_id|>system<|end_header_id|>\\n\\n" }}
{%- if tools is not none %}
    {{- "Environment: ipython\\n" }}
{%- endif %}
{{- "Cutting Knowledge Date: December 2023\\n" }}
{{- "Today Date: " + date_string + "\\n\\n" }}
{%- if tools is not none %}
    {{- "You have access to the following functions.\\n\\n" }}
    {%- for t in tools %}
        {{- t | tojson(indent=4) }}
        {{- "\\n\\n" }}
    {%- endfor %}
{%- endif %}
{{- system_message }}
{{- "<|eot_id|>" }}

{%- for message in messages %}
    {%- if not (message.role == 'ipython' or message.role == 'tool' or 'tool_calls' in message) %}
        {{- '<|start_header_id|>' + message['role'] + '<|end_header_id|>\\n\\n'+ message['content'] | trim + '<|eot_id|>' }}
    {%- elif 'tool_calls' in message %}
        {%- if not message.tool_calls|length == 1 %}
            {{- raise_exception("This model only supports single tool-calls at once!") }}
        {%- endif %}
        {%- set tool_call = message.tool_calls[0].function %}
        {{- '<|start_header_id|>assistant<|end_header_id|>\\n\\n' -}}
        {{- '{"name": "' + tool_call.name + '", ' }}
        {{- '"parameters": ' }}
        {{- tool_call.arguments | tojson }}
        {{- "}" }}
        {{- "<|eot_id|>" }}
    {%- elif message.role == "tool" or message.role == "ipython" %}
        {{- "<|start_header_id|>ipython<|end_header_id|>\\n\\n" }}
        {%- if message.content is mapping or message.content is iterable %}
            {{- message.content | tojson }}
        {%- else %}
            {{- message.content }}
        {%- endif %}
        {{- "<|eot_id|>" }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|start_header_id|>assistant<|end_header_id|>\\n\\n' }}
{%- endif %}
"""

QWEN_2_5 = """{%- if tools %}
    {{- '<|im_start|>system\\n' }}
    {%- if messages[0]['role'] == 'system' %}
        {{- messages[0]['content'] }}
    {%- else %}
        {{- 'You are Qwen, created by Alibaba Cloud. You are a helpful assistant.' }}
    {%- endif %}
    {{- "\\n\\n# Tools\\n\\nYou may call one or more functions to assist with the user query.\\n\\nYou are provided with function signatures within <tools></tools> XML tags:\\n<tools>" }}
    {%- for tool in tools %}
        {{- "\\n" }}
        {{- tool | tojson }}
    {%- endfor %}
    {{- "\\n</tools>\\n<|im_end|>\\n" }}
{%- else %}
    {%- if messages[0]['role'] == 'system' %}
        {{- '<|im_start|>system\\n' + messages[0]['content'] + '<|im_end|>\\n' }}
    {%- else %}
        {{- '<|im_start|>system\\nYou are Qwen, created by Alibaba Cloud. You are a helpful assistant.<|im_end|>\\n' }}
    {%- endif %}
{%- endif %}
{%- for message in messages %}
    {%- if (message.role == "user") or (message.role == "system" and not loop.first) or (message.role == "assistant" and not message.tool_calls) %}
        {{- '<|im_start|>' + message.role + '\\n' + message.content + '<|im_end|>' + '\\n' }}
    {%- elif message.role == "assistant" %}
        {{- '<|im_start|>' + message.role }}
        {%- if message.content %}
            {{- '\\n' + message.content }}
        {%- endif %}
        {%- for tool_call in message.tool_calls %}
            {%- if tool_call.function is defined %}
                {%- set tool_call = tool_call.function %}
            {%- endif %}
            {{- '\\n<tool_call>\\n{"name": "' }}
            {{- tool_call.name }}
            {{- '", "arguments": ' }}
            {{- tool_call.arguments | tojson }}
            {{- '}\\n</tool_call>' }}
        {%- endfor %}
        {{- '<|im_end|>\\n' }}
    {%- elif message.role == "tool" %}
        {%- if (loop.index0 == 0) or (messages[loop.index0 - 1].role != "tool") %}
            {{- '<|im_start|>user' }}
        {%- endif %}
        {{- '\\n<tool_response>\\n' }}
        {{- message.content }}
        {{- '\\n</tool_response>' }}
        {%- if loop.last or (messages[loop.index0 + 1].role != "tool") %}
            {{- '<|im_end|>\\n' }}
        {%- endif %}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|im_start|>assistant\\n' }}
{%- endif %}
"""

# Earlier turns lose what the assistant thought.
QWEN_3 = """{%- if messages[0].role == 'system' %}
    {{- '<|im_start|>system\\n' + messages[0].content + '<|im_end|>\\n' }}
{%- endif %}
{%- set ns = namespace(multi_step_tool=true, last_query_index=messages|length - 1) %}
{%- for message in messages[::-1] %}
    {%- set index = (messages|length - 1) - loop.index0 %}
    {%- if ns.multi_step_tool and message.role == "user" and message.content is string and not(message.content.startswith('<tool_response>') and message.content.endswith('</tool_response>')) %}
        {%- set ns.multi_step_tool = false %}
        {%- set ns.last_query_index = index %}
    {%- endif %}
{%- endfor %}
{%- for message in messages %}
    {%- if message.content is string %}
        {%- set content = message.content %}
    {%- else %}
        {%- set content = '' %}
    {%- endif %}
    {%- if (message.role == "user") or (message.role == "system" and not loop.first) %}
        {{- '<|im_start|>' + message.role + '\\n' + content + '<|im_end|>' + '\\n' }}
    {%- elif message.role == "assistant" %}
        {%- set reasoning_content = '' %}
        {%- if message.reasoning_content is string %}
            {%- set reasoning_content = message.reasoning_content %}
        {%- else %}
            {%- if '</think>' in content %}
                {%- set reasoning_content = content.split('</think>')[0].rstrip('\\n').split('<think>')[-1].lstrip('\\n') %}
                {%- set content = content.split('</think>')[-1].lstrip('\\n') %}
            {%- endif %}
        {%- endif %}
        {%- if loop.index0 > ns.last_query_index %}
            {%- if loop.last or (not loop.last and reasoning_content) %}
                {{- '<|im_start|>' + message.role + '\\n<think>\\n' + reasoning_content.strip('\\n') + '\\n</think>\\n\\n' + content.lstrip('\\n') }}
            {%- else %}
                {{- '<|im_start|>' + message.role + '\\n' + content }}
            {%- endif %}
        {%- else %}
            {{- '<|im_start|>' + message.role + '\\n' + content }}
        {%- endif %}
        {%- if message.tool_calls %}
            {%- for tool_call in message.tool_calls %}
                {%- if (loop.first and content) or (not loop.first) %}
                    {{- '\\n' }}
                {%- endif %}
                {%- if tool_call.function %}
                    {%- set tool_call = tool_call.function %}
                {%- endif %}
                {{- '<tool_call>\\n{"name": "' }}
                {{- tool_call.name }}
                {{- '", "arguments": ' }}
                {%- if tool_call.arguments is string %}
                    {{- tool_call.arguments }}
                {%- else %}
                    {{- tool_call.arguments | tojson }}
                {%- endif %}
                {{- '}\\n</tool_call>' }}
            {%- endfor %}
        {%- endif %}
        {{- '<|im_end|>\\n' }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|im_start|>assistant\\n' }}
    {%- if enable_thinking is defined and enable_thinking is false %}
        {{- '<think>\\n\\n</think>\\n\\n' }}
    {%- endif %}
{%- endif %}"""

MISTRAL = """{%- if messages[0]["role"] == "system" %}
    {%- set system_message = messages[0]["content"] %}
    {%- set loop_messages = messages[1:] %}
{%- else %}
    {%- set loop_messages = messages %}
{%- endif %}
{%- set user_messages = loop_messages | selectattr("role", "equalto", "user") | list %}
{%- set ns = namespace(index=0) %}
{%- for message in loop_messages %}
    {%- if not (message.role == "tool" or message.role == "tool_results" or (message.tool_calls is defined and message.tool_calls is not none)) %}
        {%- if (message["role"] == "user") != (ns.index % 2 == 0) %}
            {{- raise_exception("After the optional system message, conversation roles must alternate user/assistant/user/assistant/...") }}
        {%- endif %}
        {%- set ns.index = ns.index + 1 %}
    {%- endif %}
{%- endfor %}
{{- bos_token }}
{%- for message in loop_messages %}
    {%- if message["role"] == "user" %}
        {%- if loop.last and system_message is defined %}
            {{- "[INST] " + system_message + "\\n\\n" + message["content"] + "[/INST]" }}
        {%- else %}
            {{- "[INST] " + message["content"] + "[/INST]" }}
        {%- endif %}
    {%- elif message["role"] == "assistant" %}
        {{- " " + message["content"]|trim + eos_token}}
    {%- else %}
        {{- raise_exception("Only user and assistant roles are supported, with the exception of an initial optional system message!") }}
    {%- endif %}
{%- endfor %}
"""

GEMMA = """{{ bos_token }}{% if messages[0]['role'] == 'system' %}{{ raise_exception('System role not supported') }}{% endif %}{% for message in messages %}{% if (message['role'] == 'user') != (loop.index0 % 2 == 0) %}{{ raise_exception('Conversation roles must alternate user/assistant/user/assistant/...') }}{% endif %}{% if (message['role'] == 'assistant') %}{% set role = 'model' %}{% else %}{% set role = message['role'] %}{% endif %}{{ '<start_of_turn>' + role + '\\n' + message['content'] | trim + '<end_of_turn>\\n' }}{% endfor %}{% if add_generation_prompt %}{{'<start_of_turn>model\\n'}}{% endif %}"""

GEMMA_3 = """{{ bos_token }}
{%- if messages[0]['role'] == 'system' -%}
    {%- if messages[0]['content'] is string -%}
        {%- set first_user_prefix = messages[0]['content'] + '\\n\\n' -%}
    {%- else -%}
        {%- set first_user_prefix = messages[0]['content'][0]['text'] + '\\n\\n' -%}
    {%- endif -%}
    {%- set loop_messages = messages[1:] -%}
{%- else -%}
    {%- set first_user_prefix = "" -%}
    {%- set loop_messages = messages -%}
{%- endif -%}
{%- for message in loop_messages -%}
    {%- if (message['role'] == 'user') != (loop.index0 % 2 == 0) -%}
        {{ raise_exception("Conversation roles must alternate user/assistant/user/assistant/...") }}
    {%- endif -%}
    {%- if (message['role'] == 'assistant') -%}
        {%- set role = "model" -%}
    {%- else -%}
        {%- set role = message['role'] -%}
    {%- endif -%}
    {{ '<start_of_turn>' + role + '\\n' + (first_user_prefix if loop.first else "") }}
    {%- if message['content'] is string -%}
        {{ message['content'] | trim }}
    {%- elif message['content'] is iterable -%}
        {%- for item in message['content'] -%}
            {%- if item['type'] == 'image' -%}
                {{ '<start_of_image>' }}
            {%- elif item['type'] == 'text' -%}
                {{ item['text'] | trim }}
            {%- endif -%}
        {%- endfor -%}
    {%- else -%}
        {{ raise_exception("Invalid content type") }}
    {%- endif -%}
    {{ '<end_of_turn>\\n' }}
{%- endfor -%}
{%- if add_generation_prompt -%}
    {{'<start_of_turn>model\\n'}}
{%- endif -%}
"""

ZEPHYR = """{% for message in messages %}
{% if message['role'] == 'user' %}
{{ '<|user|>\\n' + message['content'] + eos_token }}
{% elif message['role'] == 'system' %}
{{ '<|system|>\\n' + message['content'] + eos_token }}
{% elif message['role'] == 'assistant' %}
{{ '<|assistant|>\\n'  + message['content'] + eos_token }}
{% endif %}
{% if loop.last and add_generation_prompt %}
{{ '<|assistant|>' }}
{% endif %}
{% endfor %}"""

SMOLLM = """{% for message in messages %}{% if loop.first and messages[0]['role'] != 'system' %}{{ '<|im_start|>system\\nYou are a helpful AI assistant named SmolLM, trained by Hugging Face<|im_end|>\\n' }}{% endif %}{{'<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>' + '\\n'}}{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"""

PHI_3 = """{% for message in messages %}{% if message['role'] == 'system' %}{{'<|system|>\\n' + message['content'] + '<|end|>\\n'}}{% elif message['role'] == 'user' %}{{'<|user|>\\n' + message['content'] + '<|end|>\\n'}}{% elif message['role'] == 'assistant' %}{{'<|assistant|>\\n' + message['content'] + '<|end|>\\n'}}{% endif %}{% endfor %}{% if add_generation_prompt %}{{ '<|assistant|>\\n' }}{% else %}{{ eos_token }}{% endif %}"""

SMOLLM_3 = """{# ---- defaults ---- #}
{%- if enable_thinking is not defined -%}{%- set enable_thinking = true -%}{%- endif -%}
{%- set reasoning_mode = "/think" if enable_thinking else "/no_think" -%}
{%- if messages[0].role == "system" -%}
  {%- set system_message = messages[0].content -%}
  {%- if "/no_think" in system_message -%}
    {%- set reasoning_mode = "/no_think" -%}
  {%- endif -%}
  {%- set custom_instructions = system_message.replace("/no_think", "").replace("/think", "").rstrip() -%}
{%- endif -%}
{{- "<|im_start|>system\\n## Metadata\\n\\nReasoning Mode: " ~ reasoning_mode ~ "\\n\\n" -}}
{%- if custom_instructions -%}{{- custom_instructions ~ "\\n\\n" -}}{%- endif -%}
{{- "<|im_end|>\\n" -}}
{%- for message in messages -%}
    {%- set content = message.content if message.content is string else "" -%}
    {%- if message.role == "user" -%}
        {{ "<|im_start|>" + message.role + "\\n" + content + "<|im_end|>\\n" }}
    {%- elif message.role == "assistant" -%}
        {% generation %}
        {%- if reasoning_mode == "/think" -%}
            {{ "<|im_start|>assistant\\n" + content.lstrip("\\n") + "<|im_end|>\\n" }}
        {%- else -%}
            {{ "<|im_start|>assistant\\n" + "<think>\\n\\n</think>\\n" + content.lstrip("\\n") + "<|im_end|>\\n" }}
        {%- endif -%}
        {% endgeneration %}
    {%- endif -%}
{%- endfor -%}
{%- if add_generation_prompt -%}
    {{ "<|im_start|>assistant\\n" if reasoning_mode == "/think" else "<|im_start|>assistant\\n<think>\\n\\n</think>\\n" }}
{%- endif -%}"""

# With a macro, as templates that describe tools have them.
MACROS = """{%- macro show(value, depth=0) -%}
    {%- if value is mapping -%}
        {%- for key, inner in value.items() -%}
            {{- '  ' * depth ~ key ~ ':\\n' ~ show(inner, depth + 1) -}}
        {%- endfor -%}
    {%- elif value is iterable and value is not string -%}
        {%- for inner in value -%}{{- show(inner, depth=depth + 1) -}}{%- endfor -%}
    {%- else -%}
        {{- '  ' * depth ~ value ~ '\\n' -}}
    {%- endif -%}
{%- endmacro -%}
{%- for message in messages -%}
    {{- show(message) -}}
{%- else -%}
    nothing
{%- endfor -%}
{% set block %}
  {{ messages | length }} messages
{% endset %}
{{ block | trim | upper }}
"""

FAMILIES = {name.lower(): text for name, text in list(globals().items())
            if name.isupper() and isinstance(text, str)}

# One part of Jinja each.
PARTS = [
    "a {#-#}  b {#+#}\n c {#- d -#}  e {##}\nf", "{{ (-9223372036854775807 - 1) is divisibleby(-1) }}",
    "{% set x = 'aé🙂bc' %}{{ x[1:3] }}|{{ x[-2:] }}|{{ x[3:1] }}|{{ x[:-9] }}|{{ x[2] }}|{{ x[-1] }}|{{ x[9] }}|{{ x[::2] }}",
    "{{ ['a', 'B', 'A', 1, 'b', 1] | unique | list }}",
    "a\n  {% if true %}\n  b\n  {% endif %}\nc\n",
    "a\n  {%+ if true %}\n  b\n  {%- endif +%}\nc\n\n",
    "{% if true -%}  \n x {%- endif %} y\n{# gone #}\n  {#- too -#}  z",
    "  {{ 1 }}  \n{{- 2 -}}\n 3",
    "{% set x = 1, 2 %}{{ x }}{{ (1,) }}{{ () }}{{ [1, 'a', \"it's\", 2.5, none, true] }}",
    "{{ {'a': 1, 'b': [1, {'c': none}]} }}{{ {'a': {}} }}",
    "{{ 7 // 2 }} {{ -7 // 2 }} {{ 7 % 3 }} {{ -7 % 3 }} {{ 7 / 2 }} {{ 4 / 2 }} {{ 2 * 3 + 1 - 4 }}",
    "{{ 1.0 }} {{ 1e16 }} {{ 1e15 }} {{ 0.0001 }} {{ 0.00001 }} {{ 1.5e300 }} {{ 100.25 }}",
    "{{ 'a' ~ 1 ~ none ~ true ~ 2.0 }}{{ 'ab' * 3 }}{{ 1 if false }}|{{ missing }}|{{ missing is defined }}",
    "{{ 1 < 2 < 3 }} {{ 1 < 2 > 3 }} {{ 'a' < 'b' }} {{ 1 == 1.0 }} {{ true == 1 }} {{ [1] == [1] }} {{ (1,) == [1] }}",
    "{{ not 1 == 2 }} {{ not true and false }} {{ 1 or 2 }} {{ 0 or '' }} {{ 3 and 4 }} {{ 'x' in 'xyz' }} {{ 'q' not in ['q'] }}",
    "{{ 'häßlich'[1:4] }} {{ 'abc'[::-1] }} {{ 'abc'[-1] }} {{ [1,2,3][-2:] }} {{ [1,2,3,4][::2] }} {{ 'abc'[5:] }} {{ 'abc'[1] }}",
    "{{ '  x\u00a0\u3000 ' | trim }}| {{ ' x '.strip() }}|{{ 'xxaxx'.strip('x') }}|{{ 'xxa'.lstrip('x') }}|{{ 'axx'.rstrip('x') }}",
    "{{ 'a,b,c'.split(',') }} {{ ' a  b '.split() }} {{ 'a,b,c'.split(',', 1) }} {{ 'a,b,c'.rsplit(',', 1) }} {{ 'abc'.split('z')[-1] }}",
    "{{ 'abc'.startswith('ab') }} {{ 'abc'.endswith(('x', 'c')) }} {{ 'abc'.replace('b', '') }} {{ 'aaa'.replace('a', 'b', 2) }} {{ 'abcb'.find('b') }} {{ 'abcb'.count('b') }}",
    "{{ 'Hello wORLD'.title() }} {{ 'hello'.upper() }} {{ 'HELLO'.lower() }} {{ 'hELLO'.capitalize() }} {{ '12'.isdigit() }}",
    "{{ ['a', 1, none] | join(', ') }} {{ 'abc' | list }} {{ 'abc' | first }}{{ 'abc' | last }} {{ [] | first }}| {{ [3,1,2] | sort }} {{ [1,2] | reverse | list }}",
    "{{ {'b': 1, 'a': 2} | items | list }} {{ {'b': 1, 'a': 2} | dictsort }} {{ {'b': 1}.keys() | list }} {{ {'b': 1}.get('c') }} {{ {'b': 1}.get('b', 2) }} {{ {'b': 1}['b'] }}",
    "{{ missing | default('d') }} {{ '' | default('d') }}| {{ '' | default('d', true) }} {{ none | default('d') }}",
    "{{ {'a': 'ä\"\\n\\t\u2028</b>', 'b': [1, 2.5, true, none], 'c': {}, 'd': []} | tojson }}",
    "{{ {'a': [1, {'b': 2}], 'c': {}} | tojson(indent=2) }} {{ {'b': 1, 'a': 2} | tojson(sort_keys=true) }} {{ 'ä😀' | tojson(ensure_ascii=true) }}",
    "{% for i in range(5) if i % 2 == 0 %}{{ loop.index }}{{ loop.index0 }}{{ loop.revindex }}{{ loop.revindex0 }}{{ loop.first }}{{ loop.last }}{{ loop.length }}{{ i }};{% else %}none{% endfor %}",
    "{% for i in [] %}x{% else %}none{% endfor %}{% for a, b in [(1, 2), (3, 4)] %}{{ a + b }}{% endfor %}{% for k in {'x': 1} %}{{ k }}{% endfor %}{% for c in 'äb' %}{{ c }}-{% endfor %}",
    "{% for i in range(9) %}{% if i == 2 %}{% continue %}{% endif %}{% if i == 5 %}{% break %}{% endif %}{{ i }}{{ loop.cycle('a', 'b') }}{% endfor %}",
    "{% for i in [1, 2, 3] %}{{ loop.previtem }}<{{ i }}>{{ loop.nextitem is defined }}{% endfor %}",
    "{% set x = 1 %}{% for i in [1, 2] %}{% set x = x + i %}{{ x }}{% endfor %}{{ x }}",
    "{% set ns = namespace(x=1, y='a') %}{% for i in [1, 2] %}{% set ns.x = ns.x + i %}{% endfor %}{{ ns.x }}{{ ns.y }}{% set ns.z = 3 %}{{ ns.z }}{{ ns.w is defined }}",
    "{% macro m(a, b='x', c=none) %}[{{ a }}{{ b }}{{ c }}]{% endmacro %}{{ m(1) }}{{ m(1, c=2) }}{{ m(b=3, a=4) }}{{ m() }}",
    "{% if 0 %}a{% elif 1 %}b{% else %}c{% endif %}{% if missing %}d{% else %}e{% endif %}{% if messages %}f{% endif %}",
    "{{ messages | map(attribute='role') | join(',') }} {{ messages | selectattr('role', 'equalto', 'user') | map(attribute='content') | list }} {{ messages | rejectattr('role', 'in', ['user']) | list | length }}",
    "{{ [1, 2, 3, 4] | select('odd') | list }} {{ [1, none, 0] | reject('none') | list }} {{ ['a', 'B'] | map('upper') | join }} {{ messages | map(attribute='absent', default='-') | join }}",
    "{{ 1 is number }}{{ 1 is string }}{{ 'a' is string }}{{ {} is mapping }}{{ [] is sequence }}{{ 1 is integer }}{{ 1.5 is float }}{{ true is boolean }}{{ none is none }}{{ 3 is divisibleby 3 }}{{ 2 is even }}{{ x is undefined }}{{ true is true }}{{ 1 is in [1] }}{{ 1 is eq 1 }}",
    "{{ 'a\\tb\\\\n\\x41\\u00e4\\q' }}{{ 'it''s' }}{{ \"d\\\"q\" }}",
    "{{ -1 }}{{ -1 | string }}{{ +2 }}{{ - 3 + 4 }}{{ 2 - -2 }}{{ 1 + 2 ~ 3 }}",
    "{{ '1' | int + 1 }} {{ 'x' | int }} {{ '2.5' | float }} {{ 2.9 | int }} {{ 'ab\ncd' | indent(2) }} {{ 'ab\n\ncd' | indent(2, true) }}",
    "{{ [1, 1, 2] | unique | list }} {{ ['b', 'A', 'c'] | sort }} {{ messages | sort(attribute='content') | map(attribute='content') | first }} {{ [1,2,3] | sort(reverse=true) }}",
    "{%- set a -%}\n  text {{ 1 }}\n{%- endset -%}<{{ a }}>{{ 'x' 'y' }}{{ dict(a=1).a }}{{ dict(a=1)['a'] }}",
    "{% set t = 'x' if messages | length > 1 else 'y' %}{{ t }}{{ 'a' if false else 'b' if true else 'c' }}",
    "{{ raise_exception is defined }}{{ namespace is defined }}{{ tools is none }}{{ documents is none }}{{ tools is defined }}",
    "{{ messages[0].content.missing is defined }}{{ messages[0]['none'] is defined }}{{ none.x is defined }}{{ messages[99] is defined }}",
    "{{ (messages[0].content ~ '!') | length }}{{ [1] + [2, 3] }}{{ 'abc' | replace('b', 'x') }}{{ 5 | string | length }}",
]

# What Jinja makes as it goes, and what else is no list.
PARTS += [
    "{% if messages | selectattr('role', 'equalto', 'tool') %}yes{% endif %}{% if [] | map('upper') %}y{% endif %}{% if {} | items %}y{% endif %}{% if [] | unique %}y{% endif %}{% if [] | reverse %}y{% endif %}",
    "{% if {}.items() %}y{% else %}n{% endif %}{% if range(0) %}y{% else %}n{% endif %}{% if range(2) %}y{% endif %}{{ {'a': 1}.items() | length }}{{ range(3) | length }}",
    "{% set v = {'a': 1}.items() %}{{ v | list }}{{ v | list }}{% set r = range(3) %}{{ r | list }}{{ r | list }}{{ r[1] }}{{ r[-1] }}{{ r[9] is defined }}",
    "{% set u = messages | selectattr('role', 'equalto', 'user') %}{{ u is iterable }}{{ u is sequence }}{{ u is string }}{{ u is mapping }}{{ range(1) is sequence }}{{ {}.keys() is sequence }}{{ {}.keys() is iterable }}",
    "{{ (messages | map(attribute='role'))[0] is defined }}{{ 'user' in messages | map(attribute='role') }}{{ 'b' in {'a': 1}.keys() }}{{ messages | map(attribute='role') == ['user'] }}{{ 2 in range(3) }}",
    "{% for m in messages | selectattr('role', 'equalto', 'user') %}{{ loop.index }}/{{ loop.length }}{{ m.content }}{{ loop.last }}{% endfor %}{% set a, b = [1, 2] | map('string') %}{{ a }}{{ b }}",
    "{{ {'b': 1, 'a': 2}.keys() | sort }}{{ {'a': 1}.values() | first }}{{ {'a': 1}.keys() | last }}{{ 'abc' | reverse }}{{ (messages | map(attribute='role') | reverse) | length }}{{ [2, 1] | reverse | first }}",
    "{% for m in messages %}{% continue %}{% else %}ELSE{% endfor %}{% for m in messages %}{% break %}{% else %}ELSE{% endfor %}",
    "{% for i in [1, 2, 3] %}{% if i == 2 %}{% break %}{% endif %}a{% else %}ELSE{% endfor %}{% for i in [1, 2] %}{% if i == 2 %}{% continue %}{% endif %}{% else %}ELSE{% endfor %}",
    "{% for x in [] %}{% else %}{% set a = 1 %}{{ a }}{% endfor %}{{ a is defined }}{% for y in [1] %}{% for x in [] %}{% else %}{% break %}{% endfor %}b{% endfor %}",
    "{{ \"hello it's foo.bar (x-y) 3rd [a {b <c\" | title }} {{ \"it's foo.bar\".title() }} {{ 'dž Dž ΑΣ ﬁx ΟΔΥΣΣΕΥΣ' | title }} {{ 'ΑΣ Σ aΣ.b'.title() }}",
    "{{ 'straße ﬁ ŉ ᾀ' | upper }} {{ 'ΟΔΥΣΣΕΥΣ Σ aΣ. İ' | lower }} {{ 'ßa' | capitalize }} {{ 'džA' | capitalize }} {{ 'ﬃ'.title() }}",
    "{{ 'a\\x0cb\\r\\nc\\rd\u2028e' | indent(2) }}|{{ 'a\\n\\nb\\r' | indent(1, true, true) }}|{{ '' | indent(2, true) }}|{{ 'a\\n' | indent }}|",
    "{{ missing is callable }}{{ 1 is callable }}{% for a in [1] %}{{ loop is iterable }}{{ loop is callable }}{{ loop is mapping }}{% endfor %}{{ 1 is eq(1) is true }}",
    "{{ ['\\x7f', 'é', '\\u200b', '\\xa0', '\\U0001F600', '\\u2028', '\\U000E0001', '\\x1b', 'a\\'\\u3000'] }}{{ {'\\xad': 1} }}",
    "{{ '½a'.isdigit() }}{{ '١٢'.isdigit() }}{{ ''.isdigit() }}{{ '1a'.isdigit() }}{{ '１2'.isdigit() }}",
    "{{ 'nan' | float }} {{ '-Infinity' | float }} {{ 'nan' | int }} {{ '1_0' | int }} {{ '1__0' | int }} {{ '_1' | int(3) }} {{ '1_0.5' | float }} {{ '+-1' | int }} {{ 'é' | int(4) }} {{ 'infinit' | float }} {{ none | int }}",
]

# Errors: of the template, and what it says itself.
FAILING = [
    "{{ 'a' is string is true }}", "{{ missing | int }}", "{{ missing | float }}", "{{ missing | dictsort }}",
    "{{ messages | selectattr('role', 'equalto', 'user') | length }}", "{{ [1] | map('string') + [2] }}",
    "{{ [1, 2] | map('string') | tojson }}", "{{ {'a': 1}.items() | tojson }}", "{{ range(3) + [1] }}",
    "{{ [1, 2] | map('string') | last }}", "{{ [1, 2] | reverse | length }}",
    "{{ (messages | map(attribute='role'))[0].x }}",
    "{{ missing.attribute }}", "{{ missing + 1 }}", "{{ 1 + 'a' }}", "{{ raise_exception('no') }}",
    "{% for x in 5 %}{% endfor %}", "{{ 1 // 0 }}", "{{ 'a' < 1 }}", "{% if %}{% endif %}", "{{ 1 ", "{% for x in y %}",
    "{{ nosuch() }}", "{{ 'a'.nosuch() }}", "{{ 'a' | nosuch }}", "{{ 'a' is nosuch }}", "{% nosuch %}",
    "{% macro m(a) %}{{ m(a) }}{% endmacro %}{{ m(1) }}", "{{ range(1000000) }}", "{% set ns = namespace() %}{% set ns.__class__ = 1 %}",
    "{{ [].append(1) }}", "{{ 'a' in 5 }}",
]

# What transformers can and we refuse by name.
REFUSED = {
    "{{ strftime_now('%d') }}": "strftime_now",
    "{% set f = range %}{{ f(3) }}": "under another name",
    "{% macro m(f) %}{{ f('x') }}{% endmacro %}{{ m(raise_exception) }}": "under another name",
    "{% for a in [1, 2] %}{% set x %}{% break %}{% endset %}{% endfor %}": "set block",
    "{% raw %}x{% endraw %}": "raw",
    "{{ messages | map(attribute='role') }}": "generator",
    "{{ {'a': 1}.items() }}": "view of a dict",
    "{{ range(3) }}": "range",
    "{{ {'a': 1}.keys() == {'a': 2}.keys() }}": "view of a dict",
    "{% set u = [1] | map('string') %}{{ u | list }}{{ u | list }}": "over a generator twice",
    "{% for x in [1] %}{% macro m() %}[{{ x }}]{% endmacro %}{{ m() }}{% endfor %}": "the macro m within a loop",
    "{% macro o() %}{% macro i() %}{% endmacro %}{% endmacro %}{{ o() }}": "the macro i within",
    "{{ '½²'.isdigit() }}": "isdigit of a number",
    "{{ joiner }}": "joiner",
    "{{ self }}": "self",
    "{{ '١٢' | int }}": "digits that are not ASCII",
    "{% include 'x' %}": "include",
    "{{ 2 ** 3 }}": "**",
    "{{ 'a' | wordcount }}": "wordcount",
    "{{ '%s' | format('x') }}": "format",
    "{{ messages[0].items }}": "items",
    "{% for x in [1] recursive %}{% endfor %}": "recursive",
    "{{ x is sameas y }}": "sameas",
}
