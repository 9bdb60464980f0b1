#!/usr/bin/env python3
"""Catches: a chat template that gives another text than transformers, parts that the assistant said
elsewhere than there, errors that are none or name nothing, a template without an end.

    chat_templates_test.py LOCKSTEP RENDER_CHAT

Skipped where transformers or jinja2 are not installed.
"""
import json
import random
import subprocess
import sys
import time
import unicodedata

import chat_template_zoo as zoo

TOKENS = {"bos_token": "<s>", "eos_token": "</s>", "pad_token": "<pad>"}
TOOLS = [{"type": "function", "function": {
    "name": "get_weather", "description": "The weather of a place: \"now\" & <b>.",
    "parameters": {"type": "object", "properties": {"place": {"type": "string"}}, "required": ["place"]}}}]
TEXTS = ["Hello!", "  spaces around \n", "", "two\n\nlines\n", "Grüße 你好 🙂 \u00a0", "'quotes' and \"more\"",
         "{{ not a tag }} {% nor this %}", "<think>\nhm\n</think>\n\nyes", "<|im_end|> inside", "tab\tand \\ back",
         "/no_think be short", "ends with </think>", "a" * 300]

# Lists that hold each other twice show as 2^90 elements.
DOUBLED = ("{% set ns = namespace(x=[1], y=[1]) %}{% for a in range(90) %}{% set ns.x = [ns.x, ns.x] %}"
           "{% set ns.y = [ns.y, ns.y] %}{% endfor %}")


def conversations():
    draw = random.Random(5)
    for number in range(60):
        messages = []
        if draw.random() < 0.4:
            messages.append({"role": "system", "content": draw.choice(TEXTS)})
        for turn in range(draw.randrange(1, 5)):
            messages.append({"role": "user", "content": draw.choice(TEXTS)})
            if turn == 0 or draw.random() < 0.8:
                messages.append({"role": "assistant", "content": draw.choice(TEXTS)})
        yield messages
    call = {"type": "function", "function": {"name": "get_weather", "arguments": {"place": "Köln", "days": 2}}}
    yield [{"role": "user", "content": "Weather?"},
           {"role": "assistant", "content": "", "tool_calls": [call]},
           {"role": "tool", "name": "get_weather", "content": "{\"t\": 12.5}"},
           {"role": "assistant", "content": "12.5 degrees.", "reasoning_content": "easy"}]
    yield [{"role": "user", "content": [{"type": "text", "text": " part "}, {"type": "image"}]},
           {"role": "assistant", "content": None}, {"role": "user", "content": "x", "extra": None}]
    yield [{"role": "assistant", "content": "first"}, {"role": "odd", "content": "who"}]


def letter_cases():
    """Templates and texts: the case of every character, alone and within words."""
    characters = [chr(c) for c in range(0x20, 0x110000)
                  if not 0xd800 <= c < 0xe000 and unicodedata.category(chr(c)) != "Cn"]
    letters = [c for c in characters if not c.isspace()
               and (unicodedata.category(c)[0] in "LM" and (c.upper() != c or c.lower() != c or c.title() != c)
                    or unicodedata.category(c) in ("Mn", "Me", "Cf", "Lm", "Sk", "Po", "Pf", "Pi", "So", "Nl"))]
    words = "{% for w in messages[0].content.split(' ') %}{{ w.capitalize() }} {% endfor %}"
    for begin in range(0, len(letters), 4000):
        part = letters[begin:begin + 4000]
        for text in (" ".join(part), " ".join(f"Σ{c}A{c}Σ{c} 1{c}Σ" for c in part)):
            yield words, text
            for change in ("| upper", "| lower", "| title", ".title()"):
                yield "{{ messages[0].content" + change + " }}", text


def expected(utilities, case):
    """The text and the generated parts in bytes, or None where transformers has an error."""
    from jinja2.exceptions import TemplateError
    messages = utilities._normalize_chat_messages(case["messages"])
    try:
        texts, parts = utilities.render_jinja_template(
            [messages], tools=case["tools"], chat_template=case["template"],
            return_assistant_tokens_mask="generation" in case["template"],
            add_generation_prompt=case["add_generation_prompt"], **case["tokens"])
    except (TemplateError, TypeError, ZeroDivisionError, OverflowError, RecursionError, AttributeError,
            ValueError):
        return None
    text = texts[0]
    return text, [[len(text[:a].encode()), len(text[:b].encode())] for a, b in (parts[0] if parts else [])]


def main():
    try:
        import jinja2  # noqa: F401
        from transformers.utils import chat_template_utils as utilities
    except ImportError:
        print("skipped: transformers or jinja2 is missing")
        return 77
    cases = []
    simple = [{"role": "user", "content": "zebra"}, {"role": "assistant", "content": "ant"},
              {"role": "user", "content": "cat"}]
    for template in zoo.FAMILIES.values():
        for number, messages in enumerate(conversations()):
            for prompt in (False, True):
                cases.append({"template": template, "messages": messages, "tokens": TOKENS,
                              "add_generation_prompt": prompt, "tools": TOOLS if number % 7 == 3 else None})
    for template in [*zoo.PARTS, *zoo.FAILING, *zoo.REFUSED]:
        cases.append({"template": template, "messages": simple, "tokens": TOKENS,
                      "add_generation_prompt": False, "tools": None})
    for template, text in letter_cases():
        cases.append({"template": template, "messages": [{"role": "user", "content": text}],
                      "tokens": TOKENS, "add_generation_prompt": False, "tools": None})
    endless = ["{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}",
               "{% for a in range(99999) %}{% for b in range(99999) %}xxxxxxxxxxxxxxxxxxxxxxxxx{% endfor %}{% endfor %}",
               "{% set ns = namespace(x='a') %}{% for a in range(99) %}{% set ns.x = ns.x + ns.x %}{% endfor %}{{ ns.x }}",
               "{{ 'abc' * 10000000000 }}",
               "{% set ns = namespace(x=[]) %}{% for a in range(99999) %}{% set ns.x = [ns.x] %}{% endfor %}",
               *(DOUBLED + "{{ " + end + " }}" for end in (
                   "ns.x", "ns.x | tojson", "ns.x == ns.y", "ns.x is eq(ns.y)", "ns.x in [ns.y]", "ns.x | string")),
               "{{ range(99999) | list | tojson(indent=64) ~ (range(99999) | map('string') | list | tojson(indent=64)) * 60 }}",
               "{% set x = 'ab' * 30000000 %}{% for a in range(99999) %}{{ 'c' in x }}{% endfor %}",
               "{% set x = 'ab' * 30000000 %}{% for a in x %}{% endfor %}", "{{ ('a ' * 99999999).split(' ') | length }}",
               "{{ " + "(" * 100000 + "1", "{% if 1 %}" * 100000, "{{ " + "not " * 100000 + "1 }}",
               "{{ " + "[" * 5000 + "]" * 5000 + " }}", "{{ " + "-" * 100000 + "1 }}", "{{ 1" + " + 1" * 100000 + " }}",
               "{{ x" + ".a" * 100000 + " }}", "{{ 1" + "|string" * 100000 + " }}", "{{ 1" + " if 1 else 1" * 100000 + " }}"]
    for template in endless:
        cases.append({"template": template, "messages": simple, "tokens": TOKENS,
                      "add_generation_prompt": False, "tools": None})
    begin = time.monotonic()
    done = subprocess.run([sys.argv[2]], input="".join(json.dumps(c) + "\n" for c in cases),
                          capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    results = [json.loads(line) for line in done.stdout.split("\n") if line]
    assert len(results) == len(cases)
    failures, same, refused = [], 0, 0

    def fail(case, text):
        failures.append(text)
        if len(failures) <= 20:
            print(f"FAILED: {case['template'][:300]!r}\n  of {json.dumps(case['messages'])[:300]}\n  {text}")

    for case, result in zip(cases, results):
        template = case["template"]
        if template in endless:
            if "error" not in result:
                fail(case, "has no error")
            continue
        if template in zoo.REFUSED:
            if zoo.REFUSED[template] not in result.get("error", ""):
                fail(case, f"{result} does not name {zoo.REFUSED[template]}")
            continue
        wanted = expected(utilities, case)
        if template in zoo.FAILING:
            assert wanted is None or template == zoo.FAILING[-3], template
        if wanted is None or "error" in result:
            refused += 1
            if (wanted is None) != ("error" in result):
                fail(case, f"transformers has {wanted}, ours {result}")
            elif not result["error"].startswith("template:1") and ":" not in result["error"]:
                fail(case, f"no line in {result}")
            continue
        same += 1
        if result["text"] != wanted[0]:
            fail(case, f"{result['text']!r}\n  is not\n  {wanted[0]!r}")
        elif result["generated"] != wanted[1]:
            fail(case, f"{result['generated']} is not {wanted[1]}")
    print(f"{same} texts are those of transformers, {refused} errors are errors there, "
          f"{time.monotonic() - begin:.1f} s; {len(failures)} failures")
    assert same > 1000 and refused > 20
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
