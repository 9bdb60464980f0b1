// Catches: JSON whose bytes differ from what they were, members out of order, numbers that lose
// digits or their sign, and errors that pass for values.

#include "runtime/base/json.h"

#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>

namespace lockstep {
namespace {

std::string error_of(const std::function<void()>& action) {
  try {
    action();
  } catch (const JsonError& error) {
    return error.what();
  }
  return "no error";
}

TEST(Json, MembersKeepTheirOrder) {
  Json json;
  json["zebra"] = 1;
  json["ape"]["leaf"] = "x";
  json["list"].push_back(true);
  json["zebra"] = 2;  // stays where it is
  EXPECT_EQ(json.dump(), R"({"zebra":2,"ape":{"leaf":"x"},"list":[true]})");
  EXPECT_EQ(json.names(), (std::vector<std::string>{"zebra", "ape", "list"}));
  EXPECT_EQ(Json::parse(json.dump()), json);
}

TEST(Json, Indents) {
  const Json json = Json::object({{"a", Json::array({1, Json::object(), Json::array()})},
                                  {"b", Json::object({{"c", Json()}})}});
  EXPECT_EQ(json.dump({.indent = 2}),
            "{\n  \"a\": [\n    1,\n    {},\n    []\n  ],\n  \"b\": {\n    \"c\": null\n  }\n}");
  EXPECT_EQ(json.dump({.indent = 0}), "{\n\"a\": [\n1,\n{},\n[]\n],\n\"b\": {\n\"c\": null\n}\n}");
  EXPECT_EQ(json.dump(), R"({"a":[1,{},[]],"b":{"c":null}})");
}

TEST(Json, NumbersAtTheLimits) {
  EXPECT_EQ(Json(std::numeric_limits<int64_t>::min()).dump(), "-9223372036854775808");
  EXPECT_EQ(Json(std::numeric_limits<uint64_t>::max()).dump(), "18446744073709551615");
  EXPECT_EQ(Json(-1).dump(), "-1");
  EXPECT_EQ(Json(4294967295u).dump(), "4294967295");
  for (const char* text : {"-9223372036854775808", "18446744073709551615", "0", "-1"})
    EXPECT_EQ(Json::parse(text).dump(), text);
  EXPECT_EQ(Json::parse("-9223372036854775808").get<int64_t>(),
            std::numeric_limits<int64_t>::min());
  EXPECT_EQ(Json::parse("9223372036854775807").get<int64_t>(), std::numeric_limits<int64_t>::max());
  EXPECT_THROW(Json::parse("9223372036854775808").get<int64_t>(), JsonError);
  EXPECT_THROW(Json::parse("9223372036854775808.0").get<int64_t>(), JsonError);
  EXPECT_EQ(Json::parse("18446744073709551615").get<uint64_t>(),
            std::numeric_limits<uint64_t>::max());
  EXPECT_THROW(Json::parse("-1").get<uint64_t>(), JsonError);
  EXPECT_THROW(Json::parse("2147483648").get<int>(), JsonError);
  EXPECT_EQ(Json::parse("-2147483648").get<int>(), std::numeric_limits<int>::min());
  EXPECT_THROW(Json::parse("1.5").get<int>(), JsonError);
  EXPECT_EQ(Json::parse("2e3").get<int>(), 2000);
  EXPECT_EQ(Json::parse("7").get<double>(), 7.0);
  EXPECT_THROW(Json::parse("1e999"), JsonError);
}

// As nlohmann's library writes doubles: as few digits as bring the number back, a fraction always,
// powers of ten from 1e-5 down and from 1e15 up.
TEST(Json, Doubles) {
  for (const auto& [value, text] : {std::pair(0.1, "0.1"),
                                    std::pair(1.0, "1.0"),
                                    std::pair(-0.0, "-0.0"),
                                    std::pair(1e14, "100000000000000.0"),
                                    std::pair(1e15, "1e+15"),
                                    std::pair(1.5e-5, "1.5e-05"),
                                    std::pair(1e-4, "0.0001"),
                                    std::pair(1.0 / 3, "0.3333333333333333"),
                                    std::pair(5e-324, "5e-324"),
                                    std::pair(1.7976931348623157e308, "1.7976931348623157e+308")})
    EXPECT_EQ(Json(value).dump(), text);
  EXPECT_EQ(Json(0.1f).dump(), "0.10000000149011612");  // the double that the float is
  EXPECT_EQ(Json(std::nan("")).dump(), "null");
  EXPECT_EQ(Json(-std::numeric_limits<double>::infinity()).dump(), "null");
  for (double value = 1e-300; value < 1e300; value *= 7.3e9)
    EXPECT_EQ(Json::parse(Json(value).dump()).get<double>(), value);
}

TEST(Json, Escapes) {
  const std::string text = "\"\\/\b\f\n\r\t\x01\x7f é 😀";
  EXPECT_EQ(Json(text).dump(), "\"\\\"\\\\/\\b\\f\\n\\r\\t\\u0001\x7f é 😀\"");
  EXPECT_EQ(Json(text).dump({.ascii = true}),
            R"("\"\\/\b\f\n\r\t\u0001\u007f \u00e9 \ud83d\ude00")");
  EXPECT_EQ(Json::parse(Json(text).dump({.ascii = true})).get<std::string>(), text);
  EXPECT_EQ(Json(std::string("a\0b", 3)).dump(), R"("a\u0000b")");
  EXPECT_EQ(Json::object({{"é\n", 1}}).dump({.ascii = true}), R"({"\u00e9\n":1})");
}

TEST(Json, BytesThatAreNoUtf8) {
  const Json json = Json::array({"bad \xff byte"});
  EXPECT_EQ(json.dump({.replace_invalid = true}), "[\"bad \xEF\xBF\xBD byte\"]");
  EXPECT_EQ(json.dump({.ascii = true, .replace_invalid = true}), R"(["bad \ufffd byte"])");
  EXPECT_EQ(error_of([&] { json.dump(); }), "invalid UTF-8 byte at index 4: 0xFF");
  EXPECT_THROW(Json::parse("\"\xff\""), JsonError);
}

TEST(Json, MalformedTextIsAnError) {
  for (const char* text :
       {"", "{", "[1,]", "{\"a\" 1}", "{1:2}", "nul", "01", "[1] 2", "'a'", "\"a"})
    EXPECT_THROW(Json::parse(text), JsonError) << text;
  EXPECT_EQ(error_of([] { Json::parse("{\"a\": }"); }),
            "parse error at line 1, column 7: syntax error while "
            "parsing value - unexpected '}'; expected '[', '{', or a literal");
}

TEST(Json, OtherFormatsAreNamed) {
  EXPECT_EQ(error_of([] { Json::parse(std::string_view("\xFF\xFE{\0}\0", 6)); }),
            "is UTF-16 text, not JSON; to convert it: iconv -f UTF-16 -t UTF-8 FILE");
  EXPECT_EQ(Json::parse("\xEF\xBB\xBF[1]").dump(), "[1]");
}

TEST(Json, DepthIsBounded) {
  const auto nested = [](size_t depth) {
    return std::string(depth, '[') + std::string(depth, ']');
  };
  EXPECT_EQ(Json::parse(nested(Json::kMaxDepth)).dump(), nested(Json::kMaxDepth));
  EXPECT_THROW(Json::parse(nested(Json::kMaxDepth + 1)), JsonError);
  EXPECT_THROW(Json::parse(std::string(10'000'000, '[')), JsonError);
}

TEST(Json, OfMembersWithOneNameTheLastCounts) {
  EXPECT_EQ(Json::parse(R"({"b":1,"a":2,"b":[3],"c":4,"a":5,"b":6})").dump(),
            R"({"b":6,"a":5,"c":4})");
}

// A vocabulary: if each name were compared with all before it, this would take a minute.
TEST(Json, ManyMembersAreReadInLinearTime) {
  constexpr int kMembers = 200'000;
  std::string text = "{";
  for (int i = 0; i < kMembers; ++i)
    text += '"' + std::to_string(i) + "\":" + std::to_string(i) + ",";
  const Json json = Json::parse(text + R"("3":-3,"100":-100,"199999":-1})");
  ASSERT_EQ(json.size(), size_t{kMembers});
  EXPECT_EQ(json["3"], Json(-3));
  EXPECT_EQ(json["100"], Json(-100));
  EXPECT_EQ(json["101"], Json(101));
  EXPECT_EQ(json.names().back(), "199999");
  EXPECT_EQ(json["199999"], Json(-1));
}

TEST(Json, WhatIsNotThereIsAnError) {
  const Json json = Json::parse(R"({"a": [1, "x"], "n": null})");
  EXPECT_EQ(error_of([&] { json.at("b"); }), "key 'b' not found");
  EXPECT_EQ(error_of([&] { json["a"].at(2); }), "array index 2 is out of range");
  EXPECT_EQ(error_of([&] { json["a"].at("b"); }), "cannot use at() with array");
  EXPECT_EQ(error_of([&] { json["a"][1].get<int>(); }), "type must be number, but is string");
  EXPECT_EQ(error_of([&] { json["n"].get<std::string>(); }), "type must be string, but is null");
  EXPECT_THROW(json["a"][0].get<bool>(), JsonError);
  EXPECT_THROW(Json(3).push_back(1), JsonError);
  EXPECT_THROW(Json("x")["a"], JsonError);
  EXPECT_THROW(Json::object().push_back(1), JsonError);
  EXPECT_THROW(Json(3).begin(), JsonError);
  EXPECT_THROW(Json::array().names(), JsonError);
  EXPECT_TRUE(json.contains("n"));
  EXPECT_FALSE(json.contains("b"));
  EXPECT_FALSE(json["a"].contains("b"));
  EXPECT_EQ(json.value("b", int64_t{7}), 7);
  EXPECT_EQ(Json::parse(R"({"b": 8})").value("b", int64_t{7}), 8);
}

TEST(Json, IteratesOverElementsAndMembers) {
  std::string text;
  for (const Json& json : {Json::parse(R"([1, "a"])"), Json::parse(R"({"k": 2, "l": []})"), Json()})
    for (const Json& value : json) text += value.dump() + ";";
  EXPECT_EQ(text, "1;\"a\";2;[];");
  EXPECT_EQ(Json::parse(R"({"k": 2, "l": []})").size(), 2u);
  EXPECT_EQ(Json("text").size(), 0u);
  EXPECT_TRUE(Json().empty());
  EXPECT_EQ(Json(std::vector<std::string>{}).dump(), "[]");
  EXPECT_EQ(Json(std::vector<int32_t>{-1, 2}).dump(), "[-1,2]");
}

TEST(Json, CopiesAreDeep) {
  Json first = Json::parse(R"({"a": [1]})");
  Json second = first;
  second["a"].push_back(2);
  EXPECT_EQ(first.dump(), R"({"a":[1]})");
  EXPECT_EQ(second.dump(), R"({"a":[1,2]})");
  const Json third = std::move(second);
  EXPECT_EQ(third.dump(), R"({"a":[1,2]})");
  first = first["a"];  // of itself
  EXPECT_EQ(first.dump(), "[1]");
}

TEST(Json, EqualByValue) {
  EXPECT_EQ(Json(1), Json::parse("1"));
  EXPECT_EQ(Json(1), Json(1.0));
  EXPECT_NE(Json(1), Json(1.5));
  EXPECT_NE(Json(-1), Json(std::numeric_limits<uint64_t>::max()));
  EXPECT_NE(Json(1), Json(true));
  EXPECT_NE(Json("1"), Json(1));
  EXPECT_NE(Json(), Json(false));
  EXPECT_NE(Json::array(), Json::object());
  EXPECT_EQ(Json::parse(R"({"a": [1, {}]})"),
            Json::object({{"a", Json::array({1, Json::object()})}}));
  EXPECT_NE(Json::parse(R"({"a": 1, "b": 2})"), Json::parse(R"({"b": 2, "a": 1})"));
}

}  // namespace
}  // namespace lockstep
