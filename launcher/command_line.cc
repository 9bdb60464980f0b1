#include "launcher/command_line.h"

#include <fmt/core.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <limits>
#include <sstream>
#include <string>
#include <type_traits>
#include <vector>

#include "launcher/standard_streams.h"
#include "runtime/base/error.h"
#include "runtime/base/streams.h"

namespace lockstep {
namespace {

// Converts the values that an option allows to the parser's type. An error lists what is allowed;
// --help shows the last argument.
CLI::Validator validator_of(const AnyValue&) { return {}; }

CLI::Validator validator_of(const OneOf& allowed) { return CLI::IsMember(allowed.words); }

CLI::Validator validator_of(const WholeNumbers& allowed) {
  return CLI::Range(allowed.low, allowed.high);
}

CLI::Validator validator_of(const AtLeast& allowed) {
  return CLI::Validator(
      [minimum = allowed.minimum](std::string& text) -> std::string {
        int64_t value = 0;
        const bool number = CLI::detail::lexical_cast(text, value);
        if (number && value >= minimum) return "";
        return fmt::format("value is {}; allowed: a whole number, {} or more", text, minimum);
      },
      fmt::format(">={}", allowed.minimum));
}

CLI::Validator validator_of(const Between& allowed) {
  return CLI::Validator(
      [allowed](std::string& text) -> std::string {
        double value = 0;
        const bool number = CLI::detail::lexical_cast(text, value);
        if (number && value >= allowed.low && value <= allowed.high) return "";  // false for NaN
        return fmt::format("value is {}; allowed: {} to {}", text, allowed.low, allowed.high);
      },
      fmt::format("{}..{}", allowed.low, allowed.high));
}

// The library accepts -1 as 2^64 - 1.
CLI::Validator not_negative() {
  return CLI::Validator(
      [](std::string& text) -> std::string {
        if (text.find('-') == std::string::npos) return "";
        return fmt::format("value is {}; allowed: a whole number, 0 or more", text);
      },
      "");
}

// The library turns a number that is too large into the largest number.
template <typename Integer>
CLI::Validator within_64_bits() {
  return CLI::Validator(
      [](std::string& text) -> std::string {
        errno = 0;
        if constexpr (std::is_signed_v<Integer>)
          std::strtoll(text.c_str(), nullptr, 0);
        else
          std::strtoull(text.c_str(), nullptr, 0);
        if (errno != ERANGE) return "";
        return fmt::format("value is {}; allowed: a whole number of up to {}",
                           text,
                           std::numeric_limits<Integer>::max());
      },
      "");
}

CLI::Option* add_target(CLI::App& app, const OptionSpec& spec) {
  return std::visit(
      [&](auto* target) {
        if constexpr (std::is_same_v<decltype(target), bool*>)
          return app.add_flag(spec.name, *target, spec.help);
        else
          return app.add_option(spec.name, *target, spec.help);
      },
      spec.target);
}

void add_option(CLI::App& app, const OptionSpec& spec) {
  CLI::Option* option = add_target(app, spec);
  const OptionRules& rules = spec.rules;
  if (rules.required) option->required();
  if (rules.with_commas) option->delimiter(',');
  if (rules.with_units) option->transform(CLI::AsSizeValue(/*kb_is_1000=*/false));
  if (rules.one_each_time) option->expected(1)->take_all();
  if (std::holds_alternative<uint64_t*>(spec.target))
    option->check(not_negative())->check(within_64_bits<uint64_t>());
  if (std::holds_alternative<int64_t*>(spec.target) ||
      std::holds_alternative<std::vector<int64_t>*>(spec.target))
    option->check(within_64_bits<int64_t>());
  if (!std::holds_alternative<AnyValue>(rules.allowed))
    option->check(
        std::visit([](const auto& allowed) { return validator_of(allowed); }, rules.allowed));
  if (!rules.environment.empty()) option->envname(rules.environment);
  if (rules.show_default) option->capture_default_str();
}

// The given options that must be the same on all ranks.
std::vector<GivenOption> given_options(const CLI::App& app, const CommandSpec& spec) {
  std::vector<GivenOption> given;
  for (const OptionSpec& option : spec.options) {
    if (option.rules.per_rank) continue;
    const CLI::Option* const parsed = app.get_option(option.name);
    if (parsed->count() > 0)
      given.push_back({option.name, CLI::detail::join(parsed->results(), ",")});
  }
  return given;
}

// Adds the contents of `spec` to `app`. If the command is chosen, it is stored in `parsed`. `path`
// has the names of the commands above.
void add_contents(CLI::App& app,
                  const CommandSpec& spec,
                  const std::string& path,
                  ParsedCommandLine& parsed) {
  if (!spec.footer.empty()) app.footer(spec.footer);
  if (!spec.subcommands.empty()) app.require_subcommand(1);
  for (const OptionSpec& option : spec.options) add_option(app, option);
  for (const CommandSpec& subcommand : spec.subcommands)  // they inherit the footer
    add_contents(*app.add_subcommand(subcommand.name, subcommand.help),
                 subcommand,
                 path.empty() ? subcommand.name : path + " " + subcommand.name,
                 parsed);
  if (spec.run == nullptr) return;
  app.callback([&app, &spec, path, &parsed] {
    parsed.command = spec.run;
    parsed.name = path;
    parsed.given = given_options(app, spec);
  });
}

// Returns an error for an unknown command; empty if the first argument is a command or a flag.
std::string unknown_command(const CommandSpec& program, int argc, char** argv) {
  if (argc < 2 || argv[1][0] == '-') return "";
  std::string allowed;
  for (const CommandSpec& command : program.subcommands) {
    if (command.name == argv[1]) return "";
    allowed += (allowed.empty() ? "" : ", ") + command.name;
  }
  return fmt::format("unknown command '{}'; allowed: {}", argv[1], allowed);
}

// The options of the command that `words` choose.
std::vector<OptionSpec> options_of(const CommandSpec& program,
                                   const std::vector<std::string>& words) {
  const CommandSpec* chosen = &program;
  std::vector<OptionSpec> options;
  for (const std::string& word : words) {
    const auto found = std::ranges::find(chosen->subcommands, word, &CommandSpec::name);
    if (found == chosen->subcommands.end()) break;
    chosen = &*found;
    options.insert(options.end(), chosen->options.begin(), chosen->options.end());
  }
  return options;
}

// Returns an error for an option with nothing behind its "=", for which the library would take the
// next word or none at all. Empty if there is none.
std::string missing_value(const CommandSpec& program, const std::vector<std::string>& words) {
  const std::vector<OptionSpec> options = options_of(program, words);
  for (size_t i = 0; i < words.size() && words[i] != "--"; ++i) {
    for (const OptionSpec& option : options) {
      const bool flag = std::holds_alternative<bool*>(option.target);
      if (words[i] == option.name + "=")
        return flag ? fmt::format("{}: value is ''; allowed: no value", option.name)
                    : fmt::format("{0}: value is ''; allowed: {0}=VALUE", option.name);
      if (words[i] != option.name || flag) continue;
      ++i;  // skips its value, whatever that is
      break;
    }
  }
  return "";
}

bool has_empty_part(const std::string& list) {
  return list.empty() || list.front() == ',' || list.back() == ',' ||
         list.find(",,") != std::string::npos;
}

// Returns an error for a list with an empty element, "1,,2", which the library would drop. Empty if
// there is none.
std::string incomplete_list(const CommandSpec& program, const std::vector<std::string>& words) {
  for (const OptionSpec& option : options_of(program, words)) {
    if (!option.rules.with_commas) continue;
    for (size_t i = 0; i < words.size(); ++i) {
      const bool joined = words[i].starts_with(option.name + "=");
      if (!joined && (words[i] != option.name || i + 1 == words.size())) continue;
      const std::string list = joined ? words[i].substr(option.name.size() + 1) : words[i + 1];
      if (has_empty_part(list))
        return fmt::format("{}: value is '{}'; allowed: values separated by commas, none empty",
                           option.name,
                           list);
    }
  }
  return "";
}

[[noreturn]] void end_with_help(const CLI::App& app, const CLI::Error& request) {
  std::ostringstream text;
  const int code = app.exit(request, text, text);
  std::fputs(text.str().c_str(), stdout);
  const std::string failure = output_failure();
  if (failure.empty()) std::exit(code);
  print_log(fmt::format("lockstep: error: {}\n", failure));
  flush_streams();
  std::exit(static_cast<int>(ExitCode::kCheckpoint));
}

}  // namespace

void CommandSpec::add(const std::string& option_name,
                      OptionTarget target,
                      const std::string& option_help,
                      const OptionRules& rules) {
  options.push_back({option_name, target, option_help, rules});
}

ParsedCommandLine parse_command_line(const CommandSpec& program,
                                     const std::string& version,
                                     int argc,
                                     char** argv) {
  ParsedCommandLine parsed;
  parsed.usage_error = unknown_command(program, argc, argv);
  if (parsed.usage_error.empty())
    parsed.usage_error = missing_value(program, {argv + 1, argv + argc});
  if (parsed.usage_error.empty())
    parsed.usage_error = incomplete_list(program, {argv + 1, argv + argc});
  if (!parsed.usage_error.empty()) return parsed;
  CLI::App app(program.help, program.name);
  app.set_version_flag("--version", version);
  add_contents(app, program, "", parsed);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() == 0) end_with_help(app, error);
    parsed.usage_error = error.what();
  }
  return parsed;
}

}  // namespace lockstep
