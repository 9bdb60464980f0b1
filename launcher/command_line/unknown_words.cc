#include "launcher/command_line/unknown_words.h"

#include <fmt/core.h>

#include <algorithm>
#include <cctype>
#include <filesystem>
#include <optional>
#include <system_error>
#include <utility>

#include "runtime/base/text.h"
#include "runtime/config/field_search.h"
#include "runtime/config/names.h"
#include "runtime/config/parse.h"

namespace lockstep::launcher {
namespace {

using Words = std::vector<std::string>;

// Words for what a command does with a flag.
constexpr std::pair<const char*, const char*> kTasks[] = {
    {"check lint verify validate", "config CONFIG --check"},
    {"defaults", "config --defaults CONFIG"},
    {"resume continue", "train CONFIG --resume auto"},
    {"start", "train CONFIG"},
    {"status", "inspect RUN_DIR"},
    {"merge", "export CHECKPOINT --out FOLDER --format huggingface"}};

bool is_config_name(const std::string& word) {
  for (const char* suffix :
       {".textproto", ".pbtxt", ".txtpb", ".prototxt", ".json", ".yaml", ".yml"})
    if (word.ends_with(suffix)) return true;
  return false;
}

bool is_there(const std::string& path) {
  std::error_code error;
  return std::filesystem::exists(path, error);
}

// A flag as it is typed: its name and, if there is one, its value.
struct TypedFlag {
  std::string word;   // "--epochs"
  std::string plain;  // "epochs"
  std::optional<std::string> value;
  std::string config;  // the next word, if it is rather the command's config
};

TypedFlag typed_flag(const WordInPlace& place) {
  const std::string& word = place.words[place.at];
  const size_t equals = word.find('=');
  TypedFlag flag{word.substr(0, equals), config::plain_flag(word.substr(0, equals)), {}, ""};
  if (equals != std::string::npos) {
    flag.value = word.substr(equals + 1);
  } else if (place.at + 1 < place.words.size()) {
    const std::string& next = place.words[place.at + 1];
    const bool number = next.size() > 1 && next[0] == '-' &&
                        (std::isdigit(static_cast<unsigned char>(next[1])) != 0);
    // The only config of the command line is not a value.
    const bool config = place.arguments.empty() && is_config_name(next);
    if (config)
      flag.config = next;
    else if (next[0] != '-' || number)
      flag.value = next;
  }
  return flag;
}

// "--run-dir out", "--eager", "--device cuda"
std::string suggest_option(const OptionSpec& option,
                           const TypedFlag& flag,
                           std::string value = "") {
  if (option.name[0] != '-') {
    const std::string given = flag.value.value_or(flag.config);
    return fmt::format(
        "{} is given without a flag{}", option.name, given.empty() ? "" : ": " + shell_word(given));
  }
  if (std::holds_alternative<bool*>(option.target))
    return fmt::format("did you mean {}?", option.name);
  if (value.empty()) value = flag.value ? shell_word(*flag.value) : "VALUE";
  return fmt::format("did you mean {} {}?", option.name, value);
}

// The flag of the command that differs in form only (--data_dir, -data), or has this name
// elsewhere.
std::string own_flag(const CommandSpec& command, const TypedFlag& flag) {
  for (const OptionSpec& option : command.options)
    if (config::plain_flag(option.name) == flag.plain && option.name[0] == '-')
      return suggest_option(option, flag);
  std::string found;
  for (const OptionSpec& option : command.options) {
    for (const std::string& other : words_of(option.rules.also)) {
      const size_t equals = other.find('=');
      if (option.name == "--set" && flag.value.value_or("=").find('=') == std::string::npos)
        continue;  // --opt sgd
      if (other.substr(0, equals) != flag.plain) continue;
      const std::string suggested =
          suggest_option(option, flag, equals == std::string::npos ? "" : other.substr(equals + 1));
      if (option.rules.required) return suggested;  // predict --output is --out, not --run-dir
      if (found.empty()) found = suggested;
    }
  }
  return found;
}

std::string near_flag(const CommandSpec& command, const TypedFlag& flag) {
  if (flag.plain.size() < 3 || flag.plain.starts_with("no_")) return "";
  Words names{"help"};
  for (const OptionSpec& option : command.options) {
    if (option.name[0] == '-') names.push_back(config::plain_flag(option.name));
    for (const std::string& other : words_of(option.rules.also))
      names.push_back(other.substr(0, other.find('=')));
  }
  const std::string near = config::nearest(flag.plain, names);
  if (near == "help") return "did you mean --help?";
  return near.empty() ? "" : own_flag(command, {flag.word, near, flag.value, flag.config});
}

std::string text_of_config(const WordInPlace& place) {
  for (const std::string& word : place.words) {
    if (!is_config_name(word) || !is_there(word)) continue;
    try {
      return config::read_config_text(word);
    } catch (const std::exception&) {
      return "";  // only hints depend on it
    }
  }
  return "";
}

// "did you mean --set train.epochs=3?" from the fields of the config.
std::string suggest_fields(const std::vector<config::FieldMatch>& matches, const TypedFlag& flag) {
  std::string list, but;
  if (!matches.empty() && matches.front().excluded) {
    for (const config::FieldMatch& match : matches) append_item(list, match.path, " or ");
    return fmt::format("it would be {}, but the config has another section instead", list);
  }
  for (const config::FieldMatch& match : matches) {
    std::string value = match.value;
    const std::string given = flag.value ? config::plain_flag(*flag.value) : "";
    if (value.empty() && match.kind == config::FieldMatch::Kind::kSwitch)
      value = given == "false" || given == "no" || given == "0" || given == "off" || given == "none"
                  ? "false"
                  : "true";
    if (value.empty()) value = flag.value ? *flag.value : "VALUE";
    append_item(list, "--set " + shell_word(match.path + "=" + value), " or ");
    if (but.empty()) but = match.but;
  }
  return list.empty() ? "" : fmt::format("did you mean {}?{}{}", list, but.empty() ? "" : " ", but);
}

// "2" for 2; for a list of GPUs, such as 0,1, how many they are.
std::string number_of_ranks(const std::string& value) {
  if (value.empty() || value.find_first_not_of("0123456789,") != std::string::npos) return "N";
  const auto commas = std::ranges::count(value, ',');
  return commas == 0 ? value : std::to_string(commas + 1);
}

std::string foreign_flag(const std::vector<ForeignFlags>& table,
                         const WordInPlace& place,
                         const TypedFlag& flag) {
  for (const ForeignFlags& flags : table) {
    if (!config::has_word(flags.names, flag.plain)) continue;
    const std::string number = number_of_ranks(flag.value.value_or(""));
    const std::string command = place.chosen.path.empty() ? "train" : place.chosen.path;
    return fmt::format(fmt::runtime(flags.remedy), flag.word, number, command);
  }
  return "";
}

std::string flags_of(const CommandSpec& command) {
  std::string list;
  for (const OptionSpec& option : command.options)
    if (option.name[0] == '-') append_item(list, option.name);
  return list;
}

// Commands other than this one that have the flag.
std::string other_commands(const CommandSpec& command,
                           const std::string& path,
                           const ChosenCommand& chosen,
                           const std::string& flag) {
  std::string list;
  if (&command != chosen.command && find_option(command, flag) != nullptr) list = path;
  for (const CommandSpec& below : command.subcommands) {
    const std::string more =
        other_commands(below, path.empty() ? below.name : path + " " + below.name, chosen, flag);
    if (!more.empty()) append_item(list, more);
  }
  return list;
}

// -D train.steps=3, --override train.steps=3
std::string assignment_flag(const CommandSpec& command, const TypedFlag& flag) {
  const std::string value = flag.value.value_or("");
  const size_t equals = value.find('=');
  if (equals == std::string::npos || find_option(command, "--set") == nullptr ||
      config::find_field(value.substr(0, equals)) == nullptr)
    return "";
  return fmt::format("did you mean --set {}?", shell_word(value));
}

// What the flag means for this command; empty if nothing is found.
std::string meaning_of(const CommandSpec& command,
                       const TypedFlag& flag,
                       const WordInPlace& place) {
  if (std::string set = assignment_flag(command, flag); !set.empty()) return set;
  if (std::string own = own_flag(command, flag); !own.empty()) return own;
  if (std::string launcher = foreign_flag(kLauncherFlags, place, flag); !launcher.empty())
    return launcher;
  const bool sets_fields =
      find_option(command, "--set") != nullptr && find_option(command, "CONFIG") != nullptr;
  const std::string value = flag.value.value_or("");
  const std::string config = sets_fields ? text_of_config(place) : "";
  const std::vector<config::FieldMatch> matches =
      sets_fields ? config::fields_named_by(flag.plain, value, config)
                  : std::vector<config::FieldMatch>{};
  if (!matches.empty() && !matches.front().excluded) return suggest_fields(matches, flag);
  if (command.name == "train")
    if (std::string other = foreign_flag(kTrainerFlags, place, flag); !other.empty()) return other;
  if (!matches.empty()) return suggest_fields(matches, flag);
  if (std::string near = near_flag(command, flag); !near.empty()) return near;
  return sets_fields && flag.plain.size() > 2
             ? suggest_fields(config::fields_named_nearly(flag.plain, value, config), flag)
             : "";
}

}  // namespace

const OptionSpec* find_option(const CommandSpec& command, const std::string& name) {
  const auto found = std::ranges::find(command.options, name, &OptionSpec::name);
  return found == command.options.end() ? nullptr : &*found;
}

ChosenCommand choose_command(const CommandSpec& program, const Words& words) {
  ChosenCommand chosen{&program, ""};
  while (chosen.words < words.size()) {
    const auto& below = chosen.command->subcommands;
    const auto found = std::ranges::find(below, words[chosen.words], &CommandSpec::name);
    if (found == below.end()) break;
    chosen.command = &*found;
    append_item(chosen.path, found->name, " ");
    ++chosen.words;
  }
  return chosen;
}

std::string unknown_flag(const WordInPlace& place) {
  const TypedFlag flag = typed_flag(place);
  const CommandSpec& command = *place.chosen.command;
  const std::string begin = fmt::format("unknown flag {}", flag.word);
  if (flag.word == "-?" || flag.plain == "usage")
    return fmt::format("{}; did you mean --help?", begin);
  if (!command.passes_to.empty()) {
    const auto passed =
        std::ranges::find(place.program.subcommands, command.passes_to, &CommandSpec::name);
    if (std::string own = own_flag(command, flag); !own.empty())
      return fmt::format("{}; {}", begin, own);
    if (passed != place.program.subcommands.end()) {
      const bool known = find_option(*passed, flag.word) != nullptr;
      const std::string meaning = known ? "" : meaning_of(*passed, flag, place);
      if (known || !meaning.empty())
        return fmt::format("{}{}{}{} flags of {} come after --: lockstep {} -n N -- {} CONFIG {}",
                           begin,
                           known ? "" : "; ",
                           meaning,
                           meaning.ends_with('?') ? "" : ";",
                           command.passes_to,
                           command.name,
                           command.passes_to,
                           known ? flag.word + " ..." : "...");
    }
  }
  if (const std::string meaning = meaning_of(command, flag, place); !meaning.empty())
    return fmt::format("{}; {}", begin, meaning);
  if (const std::string others = other_commands(place.program, "", place.chosen, flag.word);
      !others.empty())
    return fmt::format("{}; it is a flag of: {}; flags of {}: {}",
                       begin,
                       others,
                       place.chosen.path,
                       flags_of(command));
  return fmt::format("{}; flags of {}: {}", begin, place.chosen.path, flags_of(command));
}

namespace {

// +train.steps=3, train.steps 3, train.steps: 3
std::string assignment_in_words(const WordInPlace& place) {
  if (find_option(*place.chosen.command, "--set") == nullptr) return "";
  std::string path = place.words[place.at];
  path.erase(0, std::min(path.find_first_not_of('+'), path.size()));
  const size_t end = std::min(path.find_first_of("=:"), path.size());
  std::string value = end < path.size() ? path.substr(end + 1) : "";
  path.erase(end);
  if (value.empty() && place.at + 1 < place.words.size()) value = place.words[place.at + 1];
  const auto* field = config::find_field(path);
  if (field == nullptr || field->message_type() != nullptr) return "";
  return fmt::format("did you mean --set {}?",
                     shell_word(path + "=" + (value.empty() ? "VALUE" : value)));
}

}  // namespace

std::string surplus_argument(const WordInPlace& place) {
  const std::string& word = place.words[place.at];
  const CommandSpec& command = *place.chosen.command;
  const size_t equals = word.find('=');
  if (equals != std::string::npos && find_option(command, "--set") != nullptr) {
    const TypedFlag flag{
        word, config::plain_flag(word.substr(0, equals)), word.substr(equals + 1), ""};
    const std::string fields = suggest_fields(
        config::fields_named_by(flag.plain, flag.value.value_or(""), text_of_config(place)), flag);
    if (!fields.empty()) return fmt::format("unexpected '{}'; {}", word, fields);
  }
  if (const std::string set = assignment_in_words(place); !set.empty())
    return fmt::format("unexpected '{}'; {}", word, set);
  // The value of a flag that is missing: eval CONFIG RUN, generate CONFIG "Once upon".
  for (const OptionSpec& option : command.options) {
    const bool given = std::ranges::any_of(place.words, [&](const std::string& other) {
      return other == option.name || other.starts_with(option.name + "=");
    });
    const bool prompts = find_option(command, "--prompt") != nullptr;
    const bool wanted = option.rules.required || option.name == "--prompt" ||
                        (option.name == "--checkpoint" && (!prompts || is_there(word)));
    if (option.name[0] == '-' && wanted && !given)
      return fmt::format(
          "unexpected '{}'; did you mean {} {}?", word, option.name, shell_word(word));
  }
  std::string names;
  for (const OptionSpec& option : command.options)
    if (option.name[0] != '-') append_item(names, option.name, " ");
  if (names.empty())
    return fmt::format("unexpected '{}'; {} takes flags only", word, place.chosen.path);
  const std::string first = place.arguments.empty() ? "" : place.arguments.back();
  if (names.find("CONFIG") != std::string::npos && (is_config_name(word) || is_there(word)))
    return fmt::format("two configs are given, '{}' and '{}'; allowed: one", first, word);
  return fmt::format(
      "unexpected '{}'; {} takes one {}, which is '{}'", word, place.chosen.path, names, first);
}

std::string unknown_command(const CommandSpec& program,
                            const ChosenCommand& chosen,
                            const Words& words) {
  Words names;
  for (const CommandSpec& command : chosen.command->subcommands) names.push_back(command.name);
  const std::string allowed = joined(names);
  const std::string before = program.name + (chosen.path.empty() ? "" : " ") + chosen.path;
  if (words.size() == chosen.words)
    return fmt::format("no command after '{}'; allowed: {}", before, allowed);
  const std::string& word = words[chosen.words];
  if (word[0] == '-') {
    const Words none;
    const TypedFlag flag = typed_flag({program, chosen, words, chosen.words, none});
    const std::string launcher =
        foreign_flag(kLauncherFlags, {program, chosen, words, chosen.words, none}, flag);
    if (!launcher.empty()) return fmt::format("unknown flag {}; {}", flag.word, launcher);
    if (const std::string near = config::nearest(flag.plain, {"help", "version"}); !near.empty())
      return fmt::format("unknown flag {}; did you mean {} --{}?", flag.word, before, near);
    return fmt::format("unknown flag {}; a command comes first: {} COMMAND {} ..., with one of {}",
                       flag.word,
                       before,
                       flag.word,
                       allowed);
  }
  const std::string plain = config::plain_flag(word);
  for (const char* launcher :
       {"mpirun", "mpiexec", "srun", "torchrun", "accelerate", "deepspeed", "horovodrun"})
    if (word == launcher && chosen.path.empty())
      return fmt::format(
          "'{}' comes before {}: mpirun -n N {} train CONFIG, srun {} train CONFIG, torchrun "
          "--no-python {} train CONFIG; or {} launch -n N -- train CONFIG",
          word,
          program.name,
          program.name,
          program.name,
          program.name,
          program.name);
  std::string hint;
  if (chosen.path.empty())
    for (const auto& [others, meant] : kTasks)
      if (config::has_word(others, plain)) hint = meant;
  for (const CommandSpec& command : chosen.command->subcommands)
    if (hint.empty() && (config::has_word(command.also, plain) || command.name == plain))
      hint = command.name;
  for (const CommandSpec& command : chosen.command->subcommands)
    for (const CommandSpec& below : command.subcommands)
      if (hint.empty() && below.name == plain) hint = command.name + " " + below.name;
  const auto at_top = std::ranges::find(program.subcommands, plain, &CommandSpec::name);
  if (hint.empty() && at_top != program.subcommands.end())
    return fmt::format(
        "unknown command '{} {}'; did you mean {} {}?", before, word, program.name, plain);
  if (hint.empty() && chosen.path.empty() && (is_config_name(word) || is_there(word)))
    hint = "train " + shell_word(word);
  if (word == program.name) hint = words.size() > 1 ? words[1] : "--help";
  if (hint.empty()) hint = config::nearest(word, names);
  return fmt::format("unknown command '{}';{} allowed: {}",
                     word,
                     hint.empty() ? "" : fmt::format(" did you mean {} {}?", before, hint),
                     allowed);
}

}  // namespace lockstep::launcher
