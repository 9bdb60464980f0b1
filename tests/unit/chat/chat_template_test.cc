// Catches: templates that end the program, take all of the memory or never end; searches that take
// quadratic time; characters cut in the middle; numbers that are rounded. What templates give
// beside transformers is for tests/integration/chat_templates_test.py.
#include "runtime/chat/chat_template.h"

#include <gtest/gtest.h>

#include "runtime/base/error.h"

namespace lockstep::chat {
namespace {

std::string rendered(const std::string& source) {
  return ChatTemplate(source, "t.jinja").render(Json::array(), {}).text;
}

// What it is refused with.
std::string refusal(const std::string& source) {
  try {
    return "no refusal, but: " + rendered(source);
  } catch (const DataError& error) {
    return error.what();
  }
}

TEST(ChatTemplate, RefusesAFunctionUnderAnotherName) {
  EXPECT_EQ(refusal("{% set f = range %}\n{{ f(3) }}"),
            "t.jinja:2: the chat template: f is called, which is a function under another name; "
            "that is not supported");
  EXPECT_EQ(rendered("{{ range is callable }}"), "True");
}

// Each list has the one before twice: few values, and no end where all is written or compared.
TEST(ChatTemplate, RefusesValuesThatGrowBySharing) {
  const auto doubled = [](const std::string& name) {
    std::string source = "{% set " + name + " = [0] %}";
    for (int i = 0; i < 60; ++i) source += "{% set " + name + " = [" + name + ", " + name + "] %}";
    return source;
  };
  for (const char* use : {"{{ a }}", "{{ a | tojson }}", "{{ a == b }}", "{{ [a] | unique }}"})
    EXPECT_EQ(refusal(doubled("a") + doubled("b") + use),
              "t.jinja:1: the chat template: a value of more than 256 MiB");
}

TEST(ChatTemplate, RefusesTextsThatTakeTooLong) {
  const std::string set = "{% set t = 'a' * 8000000 %}";
  for (const char* use : {"{{ t.split('a') | length }}",
                          "{{ t | list | length }}",
                          "{{ t[::2] | length }}",
                          "{{ t.strip('b' * 1000 ~ 'a') }}",
                          "{% for i in range(1000) %}{{ t | length }}{% endfor %}",
                          "{% for i in range(1000) %}{{ t == t }}{% endfor %}"})
    EXPECT_EQ(refusal(set + use),
              "t.jinja:1: the chat template: more than 5000000 steps; the template takes too long")
        << use;
  EXPECT_EQ(refusal("{% set t = 'a' * 9000000 %}{{ [t, t, t, t, t, t, t, t, 1] | tojson }}"),
            "t.jinja:1: the chat template: a text of more than 64 MiB");
}

// Members are looked through one by one: that counts.
TEST(ChatTemplate, RefusesMappingsThatTakeTooLong) {
  const auto members = [](const std::string& before, const std::string& after, int count) {
    std::string text;
    for (int i = 0; i < count; ++i) text += before + "k" + std::to_string(i) + after;
    return text;
  };
  const std::string too_long =
      "t.jinja:1: the chat template: more than 5000000 steps; the template takes too long";
  EXPECT_EQ(refusal("{% set d = {" + members("'", "':0,", 12000) + "} %}"), too_long);
  EXPECT_EQ(refusal("{% set d = dict(" + members("", "=0,", 12000) + "z=0) %}"), too_long);
  EXPECT_EQ(refusal(members("{% set ", " = 0 %}", 12000)), too_long);
  const std::string few = "{% set d = {" + members("'", "':0,", 2000) + "} %}";
  EXPECT_EQ(rendered(few + "{{ d == d }}{{ d.k1999 }}"), "True0");
  EXPECT_EQ(refusal(few + "{% for i in range(100000) %}{{ d.k1999 }}{% endfor %}"), too_long);
}

TEST(ChatTemplate, RefusesManyLinesAndLongQuotations) {
  EXPECT_EQ(refusal("{{ ('\\x0b' * 9000000) | indent }}"),
            "t.jinja:1: the chat template: values of more than 256 MiB");
  EXPECT_EQ(refusal("{{ ['\\x01' * 20000000] }}"),
            "t.jinja:1: the chat template: a text of more than 64 MiB");
}

TEST(ChatTemplate, SearchesInLinearTime) {
  EXPECT_EQ(
      rendered("{% set t = 'a' * 2000000 %}{{ t.rsplit('a' * 1000000 ~ 'b') | length }}"
               "{{ 'aXbXc'.rsplit('X', 1) }}{{ 'aXXb'.rsplit('XX') }}{{ '€ß€'.rsplit('€') }}"),
      "1['aXb', 'c']['a', 'b']['', 'ß', '']");
  EXPECT_EQ(rendered("{% set t = 'a' * 2000000 %}{{ t.find('a' * 1000000 ~ 'b') }}"), "-1");
  EXPECT_EQ(
      rendered("{{ 'abcabc'.count('bc') }}{{ 'abab'.split('b') }}{{ 'aXbX'.replace('X', '-') }}"),
      "2['a', 'a', '']a-b-");
}

TEST(ChatTemplate, TakesCharactersOfTexts) {
  EXPECT_EQ(rendered("{{ 'aß€😀'[2] }}{{ 'aß€😀'[-1] }}{{ 'aß'[2] is defined }}"), "€😀False");
  EXPECT_EQ(rendered("{{ '€aß€'.strip('€') }}|{{ '€€'.lstrip('€a') }}|{{ 'aß€'.rstrip('€ß') }}"),
            "aß||a");
}

TEST(ChatTemplate, ReadsWholeNumbersExactly) {
  EXPECT_EQ(rendered("{{ '9007199254740993' | int }} {{ ' +7 ' | int }} {{ '1e3' | int }} "
                     "{{ 'x' | int(5) }} {{ '2.9' | int }}"),
            "9007199254740993 7 1000 5 2");
  EXPECT_EQ(refusal("{{ 1e19 | int }}"),
            "t.jinja:1: the chat template: an integer of more than 64 bits");
}

TEST(ChatTemplate, RefusesToLeaveALoopOutOfASetBlock) {
  EXPECT_EQ(refusal("{% for i in [1] %}{% set x %}{% break %}{% endset %}{% endfor %}"),
            "t.jinja:1: the chat template: leaving a loop within a set block is not supported");
}

TEST(ChatTemplate, SortsAndFindsWhatIsUnique) {
  EXPECT_EQ(rendered("{{ ['b', 'A', 'a', 'B'] | unique | sort }}"), "['A', 'b']");
}

}  // namespace
}  // namespace lockstep::chat
