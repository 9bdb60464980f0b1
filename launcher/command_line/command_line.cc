#include "launcher/command_line/command_line.h"

#include <fmt/core.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <sstream>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "launcher/command_line/command_words.h"
#include "launcher/command_line/option_values.h"
#include "launcher/command_line/standard_streams.h"
#include "runtime/base/error.h"
#include "runtime/base/streams.h"

namespace lockstep::launcher {
namespace {

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
  if (rules.one_each_time) option->expected(1)->take_all();
  if (!std::holds_alternative<bool*>(spec.target))
    option->transform(CLI::Validator(
        [&spec](std::string& text) { return value_problem(spec, text); }, allowed_in_help(spec)));
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
    parsed.runs_apart = spec.runs_apart;
    parsed.name = path;
    parsed.given = given_options(app, spec);
  });
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
  std::vector<std::string> words = with_usual_requests(program, {argv + 1, argv + argc});
  const std::string help = help_of(program, words);
  parsed.usage_error = usage_error(program, words);
  if (parsed.usage_error.empty()) {
    CLI::App app(program.help, program.name);
    app.set_version_flag("--version", version);
    add_contents(app, program, "", parsed);
    try {
      std::ranges::reverse(words);  // the library takes them from the end
      app.parse(std::move(words));
    } catch (const CLI::ParseError& error) {
      if (error.get_exit_code() == 0) end_with_help(app, error);
      parsed.usage_error = error.what();
    }
  }
  if (!parsed.usage_error.empty())
    parsed.usage_error = fmt::format("{} (see {})", parsed.usage_error, help);
  return parsed;
}

}  // namespace lockstep::launcher
