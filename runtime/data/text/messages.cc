#include "runtime/data/text/conversation.h"

#include <algorithm>
#include <cctype>
#include <initializer_list>
#include <optional>
#include <string_view>
#include <vector>

#include "runtime/base/text.h"
#include "runtime/config/names.h"

namespace lockstep::data {
namespace {

constexpr std::string_view kRoles[] = {"system", "user", "assistant", "tool", "developer"};

// Roles of other forms of conversations, such as ShareGPT's, and what they are called here.
struct OtherRole {
  std::string_view found, meant;
};
constexpr OtherRole kOtherRoles[] = {
    {"human", "user"},
    {"prompter", "user"},
    {"gpt", "assistant"},
    {"chatgpt", "assistant"},
    {"bot", "assistant"},
    {"chatbot", "assistant"},
    {"ai", "assistant"},
    {"model", "assistant"},
};

constexpr char kRoleFields[] =
    "data.conversations.user_role, assistant_role and system_role name other roles";

constexpr char kWithoutAnswer[] = "to leave an answer out of the loss, give it \"weight\": 0";

// Members with which other trainers leave messages out of the loss.
constexpr std::string_view kOtherWeights[] = {"train",
                                              "training",
                                              "trainable",
                                              "loss",
                                              "loss_weight",
                                              "loss_mask",
                                              "completion_mask",
                                              "assistant_mask"};
constexpr std::string_view kOtherDetails[] = {"train_detail", "training_detail"};

// The role that is probably meant by one that templates do not know; empty: none.
std::string_view meant_role(const std::string& role) {
  std::string plain;
  for (const char c : role)
    if (std::isalpha(static_cast<unsigned char>(c)) != 0)
      plain += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  for (const std::string_view known : kRoles)
    if (plain == known) return known == role ? std::string_view() : known;
  for (const OtherRole& other : kOtherRoles)
    if (plain == other.found) return other.meant;
  for (const std::string_view known : {kRoles[0], kRoles[2]})
    if (!config::suggestion(plain, {std::string(known)}).empty()) return known;
  return role.find_first_not_of(" \t\r\n") == std::string::npos ? "user" : std::string_view();
}

const char* kind_of(const Json& value) {
  switch (value.kind()) {
    case Json::Kind::kNull: return "null";
    case Json::Kind::kBoolean: return "true or false";
    case Json::Kind::kString: return "text";
    case Json::Kind::kArray: return "a list";
    case Json::Kind::kObject: return "an object";
    default: return "a number";
  }
}

std::string quoted_names(const std::vector<std::string>& names) {
  constexpr size_t kMost = 8;
  std::string list;
  for (size_t i = 0; i < std::min(names.size(), kMost); ++i)
    list += (i > 0 ? ", " : "") + in_quotes(names[i]);
  return names.size() > kMost ? list + ", ..." : list;
}

std::string problem_of_role(const Json& message) {
  if (message.kind() != Json::Kind::kObject)
    return fmt::format("is {}; allowed: an object with 'role' and 'content'", kind_of(message));
  const Json* role = message.find("role");
  if (role == nullptr)
    return fmt::format("has no 'role'; its members are {}", quoted_names(message.names()));
  if (!role->is_string()) return fmt::format("has a role that is {}, not text", kind_of(*role));
  const auto name = role->get<std::string>();
  const std::string_view meant = meant_role(name);
  if (meant.empty()) return "";
  return fmt::format(
      "has the role {}; did you mean '{}'? allowed: system, user, assistant, tool; {}",
      in_quotes(name),
      meant,
      kRoleFields);
}

// The role of chat templates for one in the data.
std::string translated_role(const std::string& role, const ConversationsConfig& config) {
  if (role == config.user_role || role == "human") return "user";
  if (role == config.assistant_role || role == "gpt") return "assistant";
  if (role == config.system_role) return "system";
  return role;
}

// A message with the members `role` and `content`; the others stay.
Json renamed(const Json& message,
             const std::string& role_name,
             const std::string& content_name,
             const std::string& role) {
  Json result = Json::object({{"role", Json(role)}});
  if (const Json* content = message.find(content_name)) result["content"] = *content;
  for (const std::string& name : message.names())
    if (name != role_name && name != content_name && name != "role" && name != "content")
      result[name] = message[name];
  return result;
}

// Sets *text to the joined texts of a list of parts. Returns what is wrong, or "".
std::string join_parts(const Json& parts, std::string* text) {
  for (const Json& part : parts) {
    const Json *type = part.find("type"), *held = part.find("text");
    const bool is_text = type == nullptr || *type == Json("text");
    if (!is_text)
      return fmt::format("has a part of type {}; allowed: parts of type \"text\"",
                         type->is_string() ? in_quotes(type->get<std::string>()) : kind_of(*type));
    if (held == nullptr || !held->is_string())
      return "has a part without 'text'; allowed: {\"type\": \"text\", \"text\": \"...\"}";
    *text += held->get<std::string>();
  }
  return "";
}

std::string problem_of_content(const Json& message) {
  const Json *content = message.find("content"), *calls = message.find("tool_calls");
  if (content != nullptr && !content->is_null()) {
    if (content->is_string() || content->kind() == Json::Kind::kArray) return "";
    return fmt::format("has a content that is {}; allowed: text in quotes", kind_of(*content));
  }
  const bool is_answer = is_assistant(message);
  if (is_answer && calls != nullptr && !calls->empty()) return "";
  if (is_answer) return "is of the assistant and has no answer; allowed: content, or tool_calls";
  const Json& role = message["role"];
  if (role != Json("user") && role != Json("system")) return "";
  return fmt::format("is of the {} and has no content", role.get<std::string>());
}

// Whether a member that weights a message leaves it out of the loss; nothing if it is unclear.
std::optional<bool> leaves_out(const Json& member) {
  if (member == Json(false) || member == Json(0)) return true;
  if (member == Json(true) || member == Json(1)) return false;
  return std::nullopt;
}

std::string lower_case(std::string text) {
  for (char& c : text) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return text;
}

std::string problem_of_weight(const Json& message) {
  const bool answer = is_assistant(message);
  for (const std::string& name : message.names())
    if (name != "weight" && lower_case(name) == "weight")
      return fmt::format("has {}; did you mean 'weight'?", in_quotes(name));
  if (const Json* weight = message.find("weight"); weight != nullptr && !weight->is_null()) {
    const bool zero = *weight == Json(0), one = *weight == Json(1);
    if (!zero && !one)
      return fmt::format(
          "has the weight {}; allowed: 0, which leaves the answer out of the loss, or 1",
          in_quotes(weight->dump()));
    if (one && !answer)
      return "has the weight 1, but is not of the assistant; only answers count in the loss";
  }
  for (const std::string_view name : kOtherWeights) {
    const Json* member = message.find(name);
    const std::optional<bool> left_out = member == nullptr ? std::nullopt : leaves_out(*member);
    if (!left_out) continue;
    if (answer && *left_out)
      return fmt::format(
          "has '{}': {}, which is not read; {}", name, member->dump(), kWithoutAnswer);
    if (!answer && !*left_out)
      return fmt::format(
          "has '{}': {}, but is not of the assistant; only answers count in the loss",
          name,
          member->dump());
  }
  for (const std::string_view name : kOtherDetails)
    if (const Json* member = message.find(name); member != nullptr && !member->empty())
      return fmt::format("has '{}', which is not read; {}", name, kWithoutAnswer);
  return "";
}

}  // namespace

bool is_assistant(const Json& message) { return message["role"] == Json("assistant"); }

bool counts_in_loss(const Json& message) {
  const Json* weight = message.find("weight");
  return weight == nullptr || weight->is_null() || !(*weight == Json(0));
}

std::string translate_messages(const std::string& field,
                               const ConversationsConfig& config,
                               Json* messages,
                               bool* is_share_gpt) {
  if (messages->kind() != Json::Kind::kArray) return "";
  Json all = Json::array();
  for (size_t i = 0; i < messages->size(); ++i) {
    const Json& message = messages->at(i);
    const bool share_gpt =
        !message.contains(config.role) && message.contains("from") && message.contains("value");
    const std::string role_name = share_gpt ? "from" : config.role;
    const std::string content_name = share_gpt ? "value" : config.content;
    const Json* const found = message.find(role_name);
    if (found == nullptr && role_name != "role" && message.kind() == Json::Kind::kObject)
      return fmt::format(
          "'{}': message {} has no '{}', which data.conversations.role names; its "
          "members are {}",
          field,
          i,
          role_name,
          quoted_names(message.names()));
    if (found == nullptr || !found->is_string()) {
      all.push_back(message);  // check_messages() reports it
      continue;
    }
    const auto given = found->get<std::string>();
    const std::string role = translated_role(given, config);
    if (share_gpt && std::ranges::find(kRoles, role) == std::end(kRoles))
      return fmt::format(
          "'{}': message {} has the role {}; allowed in ShareGPT's form: human, gpt, system, "
          "tool; {}",
          field,
          i,
          in_quotes(given),
          kRoleFields);
    *is_share_gpt = *is_share_gpt || share_gpt;
    all.push_back(role == given && role_name == "role" && content_name == "content"
                      ? message
                      : renamed(message, role_name, content_name, role));
  }
  *messages = std::move(all);
  return "";
}

std::string check_messages(const std::string& field, Json* messages) {
  if (messages->kind() == Json::Kind::kArray && messages->empty())
    return fmt::format("'{}' is an empty list; allowed: a list of messages", field);
  if (messages->is_string() && messages->get<std::string>().starts_with("[{"))
    return fmt::format(
        "'{0}' is text, not a list of messages; to convert it: jq -c '.{0} |= fromjson' FILE > "
        "FILE.messages.jsonl",
        field);
  if (messages->kind() != Json::Kind::kArray)
    return fmt::format("'{}' is {}, not a list of messages", field, kind_of(*messages));
  Json all = Json::array();
  for (size_t i = 0; i < messages->size(); ++i) {
    Json message = messages->at(i);
    std::string problem = problem_of_role(message);
    if (problem.empty()) problem = problem_of_content(message);
    if (problem.empty()) problem = problem_of_weight(message);
    const Json* content = message.find("content");
    if (problem.empty() && content != nullptr && content->kind() == Json::Kind::kArray) {
      std::string text;
      problem = join_parts(*content, &text);
      message["content"] = Json(text);
    }
    if (!problem.empty()) return fmt::format("'{}': message {} {}", field, i, problem);
    all.push_back(std::move(message));
  }
  *messages = std::move(all);
  return "";
}

std::string roles_in(const Json& messages) {
  std::vector<std::string> roles;
  for (const Json& message : messages) {
    const auto role = message["role"].get<std::string>();
    if (std::ranges::find(roles, role) == roles.end()) roles.push_back(role);
  }
  return quoted_names(roles);
}

std::string weight_of_line(const Json& line) {
  for (const char* name : {"weight", "loss_weight", "loss_mask", "completion_mask", "train"}) {
    const Json* member = line.find(name);
    if (member == nullptr || member->is_null() || *member == Json(1) || *member == Json(true))
      continue;
    return name;
  }
  return "";
}

namespace {

// The member of a line, in capital or small letters, that is one of `names` and a text, or "".
std::string member_of(const Json& line, std::initializer_list<std::string_view> names) {
  for (const std::string_view name : names)
    for (const std::string& member : line.names())
      if (lower_case(member) == name && line[member].is_string()) return member;
  return "";
}

}  // namespace

std::string describe_other_form(const Json& line) {
  if (line.contains("instruction") || line.contains("output"))
    return fmt::format("; Alpaca's form needs 'instruction' and 'output'; its members are {}",
                       quoted_names(line.names()));
  for (const std::string& name : line.names()) {
    const Json& member = line[name];
    if (member.kind() == Json::Kind::kArray && !member.empty() && member.at(0).contains("role"))
      return fmt::format("; its messages are in {0}: set data.conversations.messages to {0}",
                         in_quotes(name));
  }
  const std::string prompt = member_of(line, {"prompt", "question", "query", "input"});
  const std::string answer =
      member_of(line, {"completion", "response", "answer", "output", "reply"});
  if (!prompt.empty() && !answer.empty())
    return fmt::format("; set data.conversations.prompt to {} and data.conversations.answer to {}",
                       in_quotes(prompt),
                       in_quotes(answer));
  return fmt::format("; its members are {}", quoted_names(line.names()));
}

}  // namespace lockstep::data
