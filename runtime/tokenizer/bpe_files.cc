#include "runtime/tokenizer/bpe_files.h"

#include <algorithm>
#include <array>
#include <string>
#include <vector>

#include "runtime/base/error.h"
#include "runtime/base/file.h"
#include "runtime/base/json.h"
#include "runtime/base/text.h"
#include "runtime/tokenizer/json_node.h"
#include "runtime/tokenizer/split_rules.h"
#include "runtime/tokenizer/token_model.h"
#include "runtime/tokenizer/unicode.h"

namespace lockstep::tokenizer {
namespace {

namespace fs = std::filesystem;

constexpr size_t kMaxBytes = size_t{256} << 20;

// The kinds of byte-level BPE, which differ in how texts are split and in special tokens.
enum class Kind { kGpt2, kRoberta, kQwen2 };

struct NamedKind {
  std::string_view name;
  Kind kind;
};

constexpr std::array kClasses = {NamedKind{"GPT2Tokenizer", Kind::kGpt2},
                                 NamedKind{"CodeGenTokenizer", Kind::kGpt2},
                                 NamedKind{"RobertaTokenizer", Kind::kRoberta},
                                 NamedKind{"BartTokenizer", Kind::kRoberta},
                                 NamedKind{"LongformerTokenizer", Kind::kRoberta},
                                 NamedKind{"Qwen2Tokenizer", Kind::kQwen2}};
// Classes that do not name a kind.
constexpr std::array kGeneral = {"", "TokenizersBackend", "PreTrainedTokenizer"};
constexpr std::array kModelTypes = {NamedKind{"roberta", Kind::kRoberta},
                                    NamedKind{"bart", Kind::kRoberta},
                                    NamedKind{"longformer", Kind::kRoberta},
                                    NamedKind{"qwen2", Kind::kQwen2},
                                    NamedKind{"qwen3", Kind::kQwen2}};

constexpr std::array kNamedTokens = {
    "bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token"};

constexpr const char* kRemedy =
    "write a tokenizer.json with transformers: AutoTokenizer.from_pretrained(DIR).save_pretrained"
    "(DIR)";

std::string read_text(const fs::path& file) {
  std::string text;
  try {
    text = read_file(file, kMaxBytes);
  } catch (const IoError& error) {
    throw DataError("{}", error.what());
  }
  if (valid_utf8_bytes(text) != text.size()) throw DataError("{}: is not UTF-8", file.string());
  return std::string(without_byte_order_mark(text));
}

Json parse(const std::string& text, const fs::path& file) {
  Json json;
  try {
    json = Json::parse(text);
  } catch (const JsonError& error) {
    throw DataError("{}: {}", file.string(), error.what());
  }
  if (json.kind() != Json::Kind::kObject)
    throw DataError("{}: must be a JSON object", file.string());
  return json;
}

// The object in a file; an empty one if there is no such file.
Json object_in(const fs::path& file) {
  return is_there(file) ? parse(read_text(file), file) : Json::object();
}

std::string text_in(const Json& object, const char* name) {
  const Json* const value = object.find(name);
  return value != nullptr && value->is_string() ? value->get<std::string>() : "";
}

bool flag_in(const Json& object, const char* name) {
  const Json* const value = object.find(name);
  return value != nullptr && value->kind() == Json::Kind::kBoolean && value->get<bool>();
}

Json token_of(const std::string& content, bool special) {
  return Json::object({{"content", content}, {"special", special}, {"normalized", !special}});
}

// A token as the files write it: a text, or an object with flags. Null if it is neither.
Json read_token(const Json& value, bool special) {
  if (value.is_string()) return token_of(value.get<std::string>(), special);
  const Json* const content = value.kind() == Json::Kind::kObject ? value.find("content") : nullptr;
  if (content == nullptr || !content->is_string()) return {};
  Json token = Json::object({{"content", *content}});
  for (const char* flag : {"lstrip", "rstrip", "single_word"}) token[flag] = flag_in(value, flag);
  const bool is_special = special || flag_in(value, "special");
  token["special"] = is_special;
  token["normalized"] = value.contains("normalized") ? flag_in(value, "normalized") : !is_special;
  return token;
}

// The special tokens of a folder, in the order in which `transformers` adds them: those with
// numbers, those with names, and further ones.
class SpecialTokens {
 public:
  SpecialTokens(const fs::path& folder, Json& config, Kind kind, bool by_class) {
    if (config.contains(kAdditional) && list_in(config, kExtra).empty())
      config[kExtra] = config.at(kAdditional);
    if (const Json* const numbered = config.find("added_tokens_decoder"); numbered != nullptr) {
      read_numbered(*numbered);
    } else {
      const Json map = object_in(folder / "special_tokens_map.json");
      for (const std::string& name : map.names()) config[name] = marked_special(map.at(name));
      named_ = config;
      read_added(object_in(folder / "added_tokens.json"));
    }
    set_defaults(config, kind, by_class);
    for (const char* name : kNamedTokens)
      if (const Json* const value = config.find(name); value != nullptr) add_named(name, *value);
    for (const std::string& name : config.names())
      if (name.ends_with("_token") && std::ranges::count(kNamedTokens, name) == 0)
        add_named(name, config.at(name));
    for (const Json& value : list_in(config, config.contains(kExtra) ? kExtra : kAdditional))
      add(read_token(value, true));
  }

  const std::vector<Json>& tokens() const { return tokens_; }
  // The token of this name, such as bos_token; empty if there is none.
  std::string named(const char* name) const {
    const auto found = std::ranges::find(names_, name, &std::pair<std::string, std::string>::first);
    return found == names_.end() ? "" : found->second;
  }

 private:
  // The first is the newer name of the second. In special_tokens_map.json, the second does not make
  // tokens of added_tokens.json special.
  static constexpr const char *kExtra = "extra_special_tokens",
                              *kAdditional = "additional_special_tokens";

  static Json list_in(const Json& object, const char* name) {
    const Json* const list = object.find(name);
    return list != nullptr && list->is_structured() ? *list : Json::array();
  }

  static Json marked_special(const Json& value) {
    const Json token = value.kind() == Json::Kind::kObject ? read_token(value, true) : Json();
    if (token.is_null()) return value;
    return token;
  }

  // {"5": {"content": "<s>", ...}}, by number.
  void read_numbered(const Json& decoder) {
    std::vector<std::pair<int64_t, Json>> sorted;
    for (const std::string& number : decoder.names())
      sorted.emplace_back(std::atoll(number.c_str()), read_token(decoder.at(number), false));
    std::ranges::stable_sort(sorted, {}, &std::pair<int64_t, Json>::first);
    for (const auto& [number, token] : sorted) add(token);
  }

  // {"<s>": 5}, by number.
  void read_added(const Json& added) {
    std::vector<std::pair<int64_t, std::string>> sorted;
    for (const std::string& content : added.names())
      sorted.emplace_back(added.at(content).get<int64_t>(), content);
    std::ranges::sort(sorted);
    for (const auto& [number, content] : sorted) add(token_of(content, is_named(content)));
  }

  bool is_named(const std::string& content) const {
    const auto is_it = [&](const Json* value) {
      if (value == nullptr) return false;
      const Json token = read_token(*value, true);
      return !token.is_null() && token.at("content").get<std::string>() == content;
    };
    for (const char* name : kNamedTokens)
      if (is_it(named_.find(name))) return true;
    const Json extra = list_in(named_, kExtra);
    return std::ranges::any_of(extra, [&](const Json& value) { return is_it(&value); });
  }

  // The defaults of the class, for tokens that the config does not name. If only the kind of the
  // model tells what the files are, nothing is added to them.
  static void set_defaults(Json& config, Kind kind, bool by_class) {
    if (!by_class) return;
    const auto set = [&](const char* name, const char* token) {
      if (!config.contains(name)) config[name] = token;
    };
    if (kind == Kind::kRoberta) {
      for (const char* name : {"bos_token", "cls_token"}) set(name, "<s>");
      for (const char* name : {"eos_token", "sep_token"}) set(name, "</s>");
      set("unk_token", "<unk>");
      set("pad_token", "<pad>");
      set("mask_token", "<mask>");
      return;
    }
    for (const char* name : {"unk_token", "eos_token"}) set(name, "<|endoftext|>");
    set(kind == Kind::kQwen2 ? "pad_token" : "bos_token", "<|endoftext|>");
  }

  void add_named(const std::string& name, const Json& value) {
    Json token = read_token(value, true);
    if (token.is_null()) return;
    const std::string content = token.at("content").get<std::string>();
    names_.emplace_back(name, content);
    for (Json& known : tokens_)
      if (known.at("content").get<std::string>() == content) known["special"] = true;
    add(std::move(token));
  }

  void add(Json token) {
    const auto same = [&](const Json& known) {
      return known.at("content").get<std::string>() == token.at("content").get<std::string>();
    };
    if (!token.is_null() && std::ranges::none_of(tokens_, same))
      tokens_.push_back(std::move(token));
  }

  Json named_ = Json::object();
  std::vector<Json> tokens_;
  std::vector<std::pair<std::string, std::string>> names_;  // name, content
};

// The id of a token: that of the vocabulary, or if it is new, the next free one.
uint32_t id_of(const std::string& token,
               const Vocabulary& vocabulary,
               const SpecialTokens& special) {
  auto next = static_cast<uint32_t>(vocabulary.size());
  if (const auto id = vocabulary.id_of(token)) return *id;
  for (const Json& added : special.tokens()) {
    const std::string content = added.at("content").get<std::string>();
    if (content == token) break;
    if (!vocabulary.id_of(content)) ++next;
  }
  return next;
}

std::string merges_as_json(const fs::path& file) {
  const std::string text = read_text(file);
  Lines lines(text);
  std::string merges = "[";
  for (std::string_view line; lines.next(&line);) {
    if (line.empty() || line.starts_with("#version")) continue;
    if (std::ranges::count(line, ' ') != 1 || line.front() == ' ' || line.back() == ' ')
      throw DataError(
          "{}:{}: the line is '{}'; allowed: two tokens with one space between them, or first a "
          "line that begins with #version",
          file.string(),
          lines.number(),
          line.substr(0, 100));
    merges.append(merges.size() > 1 ? "," : "").append(Json(line).dump());
  }
  return merges + "]";
}

// {"type": "TemplateProcessing", ...}: the tokens that `add_bos_token` and `add_eos_token` ask for.
Json template_of(const Json& config, const Vocabulary& vocabulary, const SpecialTokens& special) {
  const std::string bos = flag_in(config, "add_bos_token") ? special.named("bos_token") : "";
  const std::string eos = flag_in(config, "add_eos_token") ? special.named("eos_token") : "";
  Json single = Json::array(), pair = Json::array(), tokens = Json::object();
  const auto add_special = [&](Json& parts, const std::string& token, int segment) {
    if (token.empty()) return;
    parts.push_back(
        Json::object({{"SpecialToken", Json::object({{"id", token}, {"type_id", segment}})}}));
    tokens[token] =
        Json::object({{"id", token}, {"ids", Json::array({id_of(token, vocabulary, special)})}});
  };
  const auto add_text = [&](Json& parts, const char* name, int segment) {
    add_special(parts, bos, segment);
    parts.push_back(
        Json::object({{"Sequence", Json::object({{"id", name}, {"type_id", segment}})}}));
    add_special(parts, eos, segment);
  };
  add_text(single, "A", 0);
  add_text(pair, "A", 0);
  add_text(pair, "B", 1);
  return Json::object({{"type", "TemplateProcessing"},
                       {"single", single},
                       {"pair", pair},
                       {"special_tokens", tokens}});
}

Json roberta_ends(const Vocabulary& vocabulary, const SpecialTokens& special) {
  const auto pair = [&](const char* name) {
    const std::string token = special.named(name);
    if (token.empty()) throw JsonError(fmt::format("has no {}", name));
    return Json::array({token, id_of(token, vocabulary, special)});
  };
  return Json::object(
      {{"type", "RobertaProcessing"}, {"sep", pair("sep_token")}, {"cls", pair("cls_token")}});
}

struct FoundKind {
  Kind kind;
  bool by_class;
};

FoundKind find_kind(const fs::path& vocabulary, const Json& config) {
  std::string name = text_in(config, "tokenizer_class");
  if (name.ends_with("Fast")) name.resize(name.size() - 4);
  for (const NamedKind& known : kClasses)
    if (name == known.name) return {known.kind, true};
  if (std::ranges::count(kGeneral, name) == 0)
    throw DataError(
        "{}: tokenizer_class is {}, which has no byte-level BPE of a known kind; allowed: "
        "GPT2Tokenizer, CodeGenTokenizer, RobertaTokenizer, BartTokenizer, LongformerTokenizer, "
        "Qwen2Tokenizer; {}",
        (vocabulary.parent_path() / "tokenizer_config.json").string(),
        name,
        kRemedy);
  const std::string type =
      text_in(object_in(vocabulary.parent_path() / "config.json"), "model_type");
  const bool is_named = name.empty() && !type.empty();
  for (const NamedKind& known : kModelTypes)
    if (type == known.name) return {known.kind, true};
  return {Kind::kGpt2, is_named && (type == "gpt2" || type == "gptj")};
}

}  // namespace

fs::path merges_beside(const fs::path& vocabulary) {
  constexpr std::string_view kVocabulary = "vocab.json";
  std::string name = vocabulary.filename().string();
  if (!name.ends_with(kVocabulary)) return {};
  name.replace(name.size() - kVocabulary.size(), kVocabulary.size(), "merges.txt");
  const fs::path merges = vocabulary.parent_path() / name;
  return is_there(merges) ? merges : fs::path();
}

namespace {

// Throws JsonError for values of a wrong type.
std::unique_ptr<const Tokenizer> open_files(const fs::path& file, const fs::path& merges) {
  const std::string text = read_text(file);
  const Json ids = parse(text, file);
  const Vocabulary vocabulary = read_vocabulary(JsonNode(ids, file.string()));
  Json config = object_in(file.parent_path() / "tokenizer_config.json");
  if (flag_in(config, "split_special_tokens"))
    throw DataError("{}: split_special_tokens is true; allowed: false",
                    (file.parent_path() / "tokenizer_config.json").string());
  const auto [kind, by_class] = find_kind(file, config);
  constexpr const char* kSpace = "\u0120";  // a space in a byte-level vocabulary
  if (!vocabulary.id_of(kSpace))
    throw DataError("{}: has no token '{}', a space in a byte-level vocabulary; {}",
                    file.string(),
                    kSpace,
                    kRemedy);
  const bool prefix_space = flag_in(config, "add_prefix_space");
  const SpecialTokens special(file.parent_path(), config, kind, by_class);
  Json added = Json::array();
  for (const Json& token : special.tokens()) added.push_back(token);
  Json pre_tokenizer = Json::object({{"type", "ByteLevel"}, {"add_prefix_space", prefix_space}});
  if (kind == Kind::kQwen2) {
    pre_tokenizer["use_regex"] = false;
    const Json split = Json::object({{"type", "Split"},
                                     {"pattern", Json::object({{"Regex", qwen2_regex()}})},
                                     {"behavior", "Isolated"}});
    pre_tokenizer = Json::object(
        {{"type", "Sequence"}, {"pretokenizers", Json::array({split, pre_tokenizer})}});
  }
  const Json ends = kind == Kind::kRoberta ? roberta_ends(vocabulary, special)
                                           : template_of(config, vocabulary, special);
  return parse_tokenizer_json(
      fmt::format(R"({{"added_tokens":{},"normalizer":{},"pre_tokenizer":{},"post_processor":{},)"
                  R"("decoder":{{"type":"ByteLevel"}},"model":{{"type":"BPE","vocab":{},)"
                  R"("merges":{}}}}})",
                  added.dump(),
                  kind == Kind::kQwen2 ? R"({"type":"NFC"})" : "null",
                  pre_tokenizer.dump(),
                  ends.dump(),
                  text,
                  merges_as_json(merges)),
      file.string());
}

}  // namespace

std::unique_ptr<const Tokenizer> open_bpe_files(const fs::path& vocabulary,
                                                const fs::path& merges) {
  try {
    return open_files(vocabulary, merges);
  } catch (const JsonError& error) {
    throw DataError(
        "{}: {}, in tokenizer_config.json, special_tokens_map.json or "
        "added_tokens.json beside it",
        vocabulary.string(),
        error.what());
  }
}

}  // namespace lockstep::tokenizer
