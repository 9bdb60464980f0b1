#include "launcher/command_line/command_words.h"

#include <fmt/core.h>

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <filesystem>
#include <map>

#include "launcher/command_line/option_values.h"
#include "launcher/command_line/unknown_words.h"
#include "runtime/config/names.h"

namespace lockstep::launcher {
namespace {

using Words = std::vector<std::string>;

bool is_number(const std::string& word) {
  return word.size() > 1 && word[0] == '-' &&
         (std::isdigit(static_cast<unsigned char>(word[1])) != 0 || word[1] == '.');
}

bool is_flag(const std::string& word) {
  return word.size() > 1 && word[0] == '-' && word != "--" && !is_number(word);
}

// The bytes of the dashes with which a word begins that was copied from a formatted page: U+2010 to
// U+2015 and U+2212. 0: it does not begin so.
size_t typographic_dash(const std::string& word) {
  size_t at = 0;
  while (word.size() > at + 2) {
    const std::string_view character = std::string_view(word).substr(at, 3);
    const bool dash =
        character.starts_with("\xe2\x80") && character[2] >= '\x90' && character[2] <= '\x95';
    if (!dash && character != "\xe2\x88\x92") break;
    at += 3;
  }
  return at == 0 ? 0 : std::min(word.find_first_not_of('-', at), word.size());
}

bool asks_for_help(const Words& words) {
  const auto end = std::ranges::find(words, "--");
  return std::any_of(
      words.begin(), end, [](const auto& word) { return word == "-h" || word == "--help"; });
}

bool takes_value(const OptionSpec& option) { return !std::holds_alternative<bool*>(option.target); }

bool is_text(const OptionSpec& option) {
  return std::holds_alternative<std::string*>(option.target) && option.name != "--set" &&
         std::holds_alternative<AnyValue>(option.rules.allowed);
}

std::string first_words(const std::string& help) {
  size_t end = help.find_first_of(";:");
  for (size_t at = help.find('.'); at != std::string::npos; at = help.find('.', at + 1))
    if (at + 1 == help.size() || help[at + 1] == ' ') end = std::min(end, at);
  return help.substr(0, end);
}

bool is_list(const OptionSpec& option) {
  return std::holds_alternative<std::vector<int32_t>*>(option.target) ||
         std::holds_alternative<std::vector<int64_t>*>(option.target) ||
         std::holds_alternative<std::vector<std::string>*>(option.target);
}

bool has_empty_part(const std::string& list) {
  return list.empty() || list.front() == ',' || list.back() == ',' ||
         list.find(",,") != std::string::npos;
}

// The words of one command, read from left to right.
class WordReader {
 public:
  WordReader(const CommandSpec& program, const ChosenCommand& chosen, const Words& words)
      : program_(program), chosen_(chosen), words_(words), at_(chosen.words) {}

  std::string error() {
    for (; at_ < words_.size(); ++at_) {
      std::string problem;
      if (words_[at_] == "--")
        rest_are_arguments_ = true;
      else if (!rest_are_arguments_ && is_flag(words_[at_]))
        problem = read_flag();
      else
        problem = read_argument();
      if (!problem.empty()) return problem;
    }
    const std::string problem = missing();
    return problem.empty() ? environment_problem() : problem;
  }

 private:
  const std::vector<OptionSpec>& options() const { return chosen_.command->options; }

  const OptionSpec* find(const std::string& name) const {
    return find_option(*chosen_.command, name);
  }

  std::string read_flag() {
    const std::string& word = words_[at_];
    const size_t equals = word.find('=');
    const OptionSpec* option = find(word.substr(0, equals));
    const bool number = word.size() > 2 && std::isdigit(static_cast<unsigned char>(word[2])) != 0;
    if (option == nullptr && word[1] != '-' && number && find(word.substr(0, 2)) != nullptr)
      return count(*find(word.substr(0, 2)), word.substr(2));  // -n4
    if (option == nullptr) return unknown_flag({program_, chosen_, words_, at_, arguments_});
    if (!takes_value(*option)) return read_switch(*option, equals);
    if (equals != std::string::npos) {
      const std::string value = word.substr(equals + 1);
      if (value.empty() && !option->rules.may_be_empty)
        return fmt::format("{0}: value is ''; allowed: {0}=VALUE", option->name);
      if (option->name == "--set")
        if (const std::string problem = path_problem(value); !problem.empty()) return problem;
      return count(*option, value);
    }
    return read_value(*option);
  }

  std::string read_switch(const OptionSpec& option, size_t equals) const {
    const std::string& word = words_[at_];
    if (equals != std::string::npos)
      return fmt::format(
          "{}: value is '{}'; allowed: no value", option.name, word.substr(equals + 1));
    const std::string next = at_ + 1 < words_.size() ? words_[at_ + 1] : "";
    if (next == "true" || next == "false" || next == "yes" || next == "no" || next == "1" ||
        next == "0" || next == "on" || next == "off")
      return fmt::format("{}: value is '{}'; allowed: no value", option.name, next);
    return "";
  }

  // The value is the next word, whatever that is, unless it is a flag of the command.
  std::string read_value(const OptionSpec& option) {
    const std::string next = at_ + 1 < words_.size() ? words_[at_ + 1] : "--";
    if (at_ + 1 == words_.size() || next == "--")
      return fmt::format("{0}: its value is missing; usage: {0} VALUE, {1}",
                         option.name,
                         is_text(option) ? first_words(option.help) : allowed_in_words(option));
    if (is_flag(next) && find(next.substr(0, next.find('='))) != nullptr)
      return fmt::format("{0}: its value is missing, because '{1}' is a flag; usage: {0} VALUE",
                         option.name,
                         next);
    ++at_;
    if (next.empty() && !option.rules.may_be_empty && !option.rules.with_commas)
      return fmt::format("{}: value is ''; give a value, or leave the flag out", option.name);
    if (option.name == "--set") {
      if (const std::string problem = assignment_problem(); !problem.empty()) return problem;
    }
    const std::string problem = count(option, next);
    // A list takes the words up to the next flag.
    if (problem.empty() && is_list(option) && !option.rules.one_each_time) {
      while (at_ + 1 < words_.size() && words_[at_ + 1] != "--" && !is_flag(words_[at_ + 1])) {
        ++at_;
        takes_words_ = true;
      }
    }
    return problem;
  }

  // Notes that the option is given.
  std::string count(const OptionSpec& option, const std::string& value) {
    if (option.rules.with_commas && has_empty_part(value))
      return fmt::format(
          "{}: value is '{}'; allowed: values separated by commas, none empty", option.name, value);
    const auto [before, first] = given_.emplace(option.name, value);
    if (!first && !is_list(option))
      return fmt::format("{0} is given twice, as '{1}' and '{2}'; allowed: once",
                         option.name,
                         before->second,
                         value);
    return "";
  }

  // --set train/epochs=3, --set Train.epochs=3, --set 'train { epochs: 3 }', and two fields in one
  // word.
  static std::string path_problem(const std::string& word) {
    const size_t equals = std::min(word.find('='), word.size());
    std::string path = word.substr(0, equals);
    if (path.find('{') != std::string::npos)
      return fmt::format(
          "--set '{}': a section of a config; allowed: one field, such as --set train.steps=100",
          word);
    for (char& c : path)
      c = c == '/' || c == ':' ? '.'
                               : static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
    if (equals < word.size() && config::find_field(word.substr(0, equals)) == nullptr &&
        config::find_field(path) != nullptr)
      return fmt::format("--set '{}': unknown field '{}'; did you mean --set {}{}?",
                         word,
                         word.substr(0, equals),
                         path,
                         word.substr(equals));
    // a=1,b=2 and "a=1 b=2"
    for (size_t next = word.find('=', equals + 1); equals < word.size() && next < word.size();
         next = word.find('=', next + 1)) {
      const size_t begin = word.find_last_of(" ,;", next) + 1;
      if (begin <= equals + 1 || config::find_field(word.substr(begin, next - begin)) == nullptr)
        continue;
      const size_t end = word.find_last_not_of(" ,;", begin - 1);
      return fmt::format("--set '{}': two fields; did you mean --set {} --set {}?",
                         word,
                         word.substr(0, end + 1),
                         word.substr(begin));
    }
    return "";
  }

  // --set train.epochs 3, --set train.epochs = 3, --set train.epochs= 3, --set train.epochs:3
  std::string assignment_problem() const {
    const std::string& word = words_[at_];
    if (const std::string problem = path_problem(word); !problem.empty()) return problem;
    const auto following = [&](size_t n) {
      const size_t at = at_ + n;
      return at < words_.size() && !is_flag(words_[at]) ? words_[at] : std::string();
    };
    const size_t equals = word.find('=');
    // One word with blanks: "train.epochs = 3", "train.epochs 3".
    const size_t blank = word.find(' '), value = word.find_first_not_of(" =:", blank);
    if (blank < equals && blank > 0 && value != std::string::npos)
      return fmt::format("--set '{}': a blank in the field's path; did you mean --set {}={}?",
                         word,
                         word.substr(0, blank),
                         word.substr(value));
    if (equals == 0 || (equals != std::string::npos && equals + 1 < word.size())) return "";
    const std::string next = following(1);
    if (equals != std::string::npos) {  // an empty value is allowed, but not before another word
      const bool surplus = !next.empty() && arguments_.size() >= arguments_allowed();
      return surplus
                 ? fmt::format(
                       "--set '{0}' '{1}': a blank behind '='; allowed: --set {0}{1}", word, next)
                 : "";
    }
    if (next == "=" && !following(2).empty())
      return fmt::format(
          "--set '{0}' '=' '{1}': blanks around '='; allowed: --set {0}={1}", word, following(2));
    if (next.size() > 1 && next[0] == '=')
      return fmt::format(
          "--set '{0}' '{1}': a blank before '='; allowed: --set {0}{1}", word, next);
    if (const size_t colon = word.find(':'); colon != std::string::npos && colon > 0)
      return fmt::format("--set '{}': no '=' between field and value; did you mean --set {}={}?",
                         word,
                         word.substr(0, colon),
                         word.substr(colon + 1));
    if (!next.empty() && !std::filesystem::exists(next))
      return fmt::format("--set '{0}': no '=' and value; did you mean --set {0}={1}?", word, next);
    return fmt::format("--set '{0}': no '=' and value; allowed: --set {0}=VALUE", word);
  }

  size_t arguments_allowed() const {
    size_t allowed = 0;
    for (const OptionSpec& option : options()) {
      if (option.name[0] == '-') continue;
      if (is_list(option)) return words_.size();
      ++allowed;
    }
    return allowed;
  }

  std::string read_argument() {
    const std::string& word = words_[at_];
    if (word.empty()) return fmt::format("{}: argument {} is empty", chosen_.path, at_ + 1);
    if (const size_t dash = typographic_dash(word); dash > 0 && !rest_are_arguments_)
      return fmt::format(
          "'{}' begins with another character than the two hyphens of a flag; did you mean --{}?",
          word,
          word.substr(dash));
    if (arguments_.size() >= arguments_allowed())
      return surplus_argument({program_, chosen_, words_, at_, arguments_});
    arguments_.push_back(word);
    return "";
  }

  // "lockstep eval CONFIG --checkpoint VALUE"
  std::string usage() const {
    std::string usage = fmt::format("{} {}", program_.name, chosen_.path);
    for (const OptionSpec& option : options())
      if (option.name[0] != '-')
        usage += option.rules.required ? " " + option.name : fmt::format(" [{}]", option.name);
    for (const OptionSpec& option : options())
      if (option.name[0] == '-' && option.rules.required) usage += " " + option.name + " VALUE";
    return usage;
  }

  // The value of a variable that stands for an option is checked here, under its own name.
  std::string environment_problem() const {
    for (const OptionSpec& option : options()) {
      if (option.rules.environment.empty() || given_.contains(option.name)) continue;
      const char* const value = std::getenv(option.rules.environment.c_str());
      std::string text = value == nullptr ? "" : value;
      if (text.empty()) continue;
      if (const std::string problem = value_problem(option, text); !problem.empty())
        return fmt::format("{}: {}", option.rules.environment, problem);
    }
    return "";
  }

  std::string missing() const {
    if (takes_words_) return "";  // the library knows which of them are arguments
    size_t arguments = arguments_.size();
    for (const OptionSpec& option : options()) {
      const bool argument = option.name[0] != '-';
      const bool given = argument ? arguments > 0 : given_.contains(option.name);
      if (argument && arguments > 0) --arguments;
      if (!given && option.rules.required)
        return fmt::format(
            "{} is missing ({}); usage: {}", option.name, first_words(option.help), usage());
    }
    return "";
  }

  const CommandSpec& program_;
  const ChosenCommand& chosen_;
  const Words& words_;
  size_t at_;  // the word that is read
  bool rest_are_arguments_ = false;
  bool takes_words_ = false;
  std::map<std::string, std::string> given_;
  Words arguments_;
};

}  // namespace

std::vector<std::string> with_usual_requests(const CommandSpec& program, Words words) {
  if (words.empty()) return words;
  const std::string first = words[0];
  const bool named = std::ranges::find(program.subcommands, first, &CommandSpec::name) !=
                     program.subcommands.end();
  if (!named && (first == "version" || first == "-V" || first == "-version" || first == "-v"))
    return {"--version"};
  static const Words helps = {
      "help", "-help", "-?", "?", "/?", "/help", "usage", "--usage", "man", "commands"};
  if (!named && std::ranges::find(helps, first) != helps.end()) {
    std::erase(words, first);
    words.emplace_back("--help");
  } else if (words.size() > 1 && choose_command(program, words).words == words.size() - 1) {
    const std::string& last = words.back();
    if (last == "help" || last == "-help" || last == "-?") words.back() = "--help";
    if (last == "--version" || last == "-V") return {"--version"};  // lockstep train --version
  }
  return words;
}

std::string help_of(const CommandSpec& program, const Words& words) {
  const std::string path = choose_command(program, words).path;
  return fmt::format("{}{}{} --help", program.name, path.empty() ? "" : " ", path);
}

std::string usage_error(const CommandSpec& program, const Words& words) {
  const ChosenCommand chosen = choose_command(program, words);
  if (asks_for_help(words) || words == Words{"--version"})
    return chosen.words < words.size() && !is_flag(words[chosen.words]) &&
                   !chosen.command->subcommands.empty()
               ? unknown_command(program, chosen, words)
               : "";
  if (!chosen.command->subcommands.empty()) return unknown_command(program, chosen, words);
  return WordReader(program, chosen, words).error();
}

}  // namespace lockstep::launcher
