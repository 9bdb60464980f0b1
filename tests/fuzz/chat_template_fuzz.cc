// Chat templates: finds ones that are believed, reads outside a text, endless ones, spans outside
// the text, and renderings that differ.

#include "fuzz_target.h"
#include "runtime/chat/chat_template.h"

namespace lockstep::fuzz {

// A template, a zero, messages as JSON. Without a zero two messages.
std::vector<std::string> seed_inputs() {
  const std::string messages =
      std::string(1, '\0') +
      R"([{"role":"user","content":" été 🙂\n"},{"role":"assistant","content":"x",
      "calls":[{"name":"f","arguments":{"a":[1,2.5,null,true]}}]}])";
  return {
      "{% for m in messages %}{{ '<|' + m.role + '|>\\n' + m['content']|trim + eos_token }}{% endfor %}"
      "{% if add_generation_prompt %}{{ '<|assistant|>' }}{% endif %}",
      R"({#- all -#}{%- set ns = namespace(i=0, t='') -%}{% for m in messages[::-1] if m is mapping %}
  {%- set ns.i = ns.i + loop.index0 * 2 // 3 % 5 - 1 %}{% generation %}{{ m.content[1:-1] ~ ns.i }}{% endgeneration +%}
  {% if loop.first and not loop.last or m.calls is defined %}{{- m.calls | tojson(indent=2) }}{% elif 'x' in m.content %}
  {% break %}{% else %}{{ m.get('content', 'd').split('\n')[0].rstrip() | upper }}{% endif %}{% endfor %})" +
          messages,
      R"({% macro show(v, d=0) %}{% if v is mapping %}{% for k, w in v.items() %}{{ k ~ show(w, d + 1) }}{% endfor %}
{% elif v is string %}{{ v | replace('x', 'yy') | title | length }}{% elif v is iterable %}{% for w in v %}{{ show(w, d=d+1) }}
{%- endfor %}{% else %}{{ [v, (1,), {'a': -1.5e3}] }}{% endif %}{% endmacro %}{{ show(messages) }}{% set b %} {{ 1 if false }} {% endset %}
{{ b.strip() }}{{ messages | selectattr('role', 'equalto', 'user') | map(attribute='content') | join(',') }}{{ range(3) | list }}
{{ missing | default('d', true) }}{{ 'aäb'[1] }}{{ 'a,b'.rsplit(',', 1) }}{{ [3, 1] | sort | first }}{{ raise_exception('e') }})" +
          messages,
      R"({% set t = 'ab' * 999999 %}{{ t.replace('a', t) | indent(99) }}{% for i in range(99999) %}{% for j in range(99999) %}
{{ t ~ t }}{% set t = t + t %}{{ [t, t] | join(t) | tojson(indent=9) }}{% endfor %}{% endfor %})",
      R"({% macro m(n) %}{{ m(n ~ n) ~ m([n, n]) }}{% endmacro %}{{ m('x') }}{% set d = {'a': 1, 'b': {'c': [1] * 3}} %}
{{ ('\n' * 9999) | indent | title | upper }}{% set ns = namespace(x=1) %}{% for k in range(9999) %}{% set ns.x = [ns.x, ns.x] %}{% endfor %})"};
}

namespace {

void render(const chat::ChatTemplate& chat, const Json& messages, bool prompt) {
  const chat::ChatSettings settings{.special_tokens = {{"bos_token", "<s>"}, {"eos_token", "</s>"}},
                                    .add_generation_prompt = prompt};
  const chat::RenderedChat rendered = chat.render(messages, settings);
  size_t at = 0;
  for (const chat::RenderedChat::Part& part : rendered.generated) {
    if (part.begin < at || part.end < part.begin || part.end > rendered.text.size())
      fail("a generated part is not in the text, or before the one before it");
    at = part.end;
  }
  if (chat.render(messages, settings).text != rendered.text) fail("the second text is another one");
}

}  // namespace
}  // namespace lockstep::fuzz

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace lockstep;
  const std::string_view input(reinterpret_cast<const char*>(data), size);
  const size_t zero = input.find('\0');
  fuzz::expect_errors_only([&] {
    Json messages =
        Json::parse(R"([{"role":"user","content":"a"},{"role":"assistant","content":"b"}])");
    if (zero != std::string_view::npos) {
      try {
        messages = Json::parse(input.substr(zero + 1));
      } catch (const JsonError&) {
        return;
      }
      for (const Json& message : messages.kind() == Json::Kind::kArray ? messages : Json::array())
        if (message.kind() != Json::Kind::kObject) return;
      if (messages.kind() != Json::Kind::kArray) return;
    }
    const chat::ChatTemplate chat(input.substr(0, zero), "input");
    fuzz::render(chat, messages, false);
    fuzz::render(chat, messages, true);
  });
  return 0;
}
