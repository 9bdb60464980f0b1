// lockstep config [FIELD], lockstep config CONFIG --check
#include <fmt/core.h>

#include <algorithm>
#include <sstream>

#include "collectives/agree/agreement.h"
#include "launcher/command_line/config_source.h"
#include "launcher/command_line/results.h"
#include "launcher/commands/commands.h"
#include "launcher/ranks/session.h"
#include "models/huggingface/folder.h"
#include "runtime/config/parse.h"
#include "runtime/config/reference.h"
#include "runtime/data/check_data.h"
#include "runtime/run/config_checks.h"
#include "runtime/run/lanes.h"
#include "runtime/run/read_config.h"

namespace lockstep::launcher {
namespace {

struct ConfigOptions {
  std::string field;  // or, with --check, the config file
  std::string defaults;
  std::vector<std::string> set;
  bool reference = false;
  bool check = false;
  std::string json;
};

// The words of `text` in lines of at most 100 columns. All but the first begin with `indent`
// spaces; the first one follows text of that width.
std::string wrapped(const std::string& text, size_t indent) {
  constexpr size_t kColumns = 100;
  std::istringstream words(text);
  std::string result;
  size_t column = indent;
  for (std::string word; words >> word;) {
    if (column > indent && column + 1 + word.size() > kColumns) {
      result += "\n" + std::string(indent, ' ');
      column = indent;
    }
    if (column > indent) result += " ";
    column += (column > indent ? 1 : 0) + word.size();
    result += word;
  }
  return result + "\n";
}

// Prints one line about a field: "  allowed   1..4096".
void print_line(const char* what, const std::string& text) {
  if (!text.empty()) fmt::print("  {:<10}{}", what, wrapped(text, 12));
}

std::string default_words(const config::FieldReference& field) {
  if (!field.required.empty()) return "required";
  return field.default_value == "[]" ? "an empty list" : field.default_value;
}

// Prints a line for each field, with its default and its first sentence.
void list(const std::vector<config::FieldReference>& fields) {
  constexpr size_t kWidestDefault = 24;  // longer ones push their sentence to the right
  size_t paths = 0, types = 0, defaults = 0;
  for (const config::FieldReference& field : fields) {
    paths = std::max(paths, field.path.size());
    types = std::max(types, field.type.size());
    if (!field.is_section) defaults = std::max(defaults, default_words(field).size());
  }
  defaults = std::min(defaults, kWidestDefault);
  for (const config::FieldReference& field : fields)
    fmt::print("{:<{}}  {:<{}}  {:<{}}  {}\n",
               field.path,
               paths,
               field.type,
               types,
               field.is_section ? "" : default_words(field),
               defaults,
               config::first_sentence(field.about));
}

void explain(const config::FieldReference& field) {
  fmt::print("{}\n  {}", field.path, wrapped(field.about, 2));
  if (field.is_section) {
    fmt::print("\n");
    list(config::references_below(field));
    return;
  }
  print_line("type", field.type);
  print_line("default", default_words(field));
  print_line("allowed", field.required);
  print_line("unit", field.unit);
  print_line("allowed", field.limit);
  print_line("applies", field.when);
  print_line("resume", field.on_change);
  size_t longest = 0;
  for (const config::ValueReference& value : field.values)
    longest = std::max(longest, value.name.size());
  for (const config::ValueReference& value : field.values)
    fmt::print("  {:<10}{:<{}}  {}",
               &value == &field.values.front() ? "allowed" : "",
               value.name,
               longest,
               wrapped(value.about, longest + 14));
}

Json json_of(const config::FieldReference& field) {
  Json json;
  json["path"] = field.path;
  json["type"] = field.type;
  json["about"] = field.about;
  if (field.is_section) return json;
  if (field.required.empty()) json["default"] = field.default_value;
  json["required"] = !field.required.empty();
  if (!field.unit.empty()) json["unit"] = field.unit;
  if (!field.limit.empty()) json["limit"] = field.limit;
  if (!field.when.empty()) json["when"] = field.when;
  for (const config::ValueReference& value : field.values) json["values"][value.name] = value.about;
  return json;
}

void print_fields(const ConfigOptions& options) {
  if (is_file(options.field))
    throw ConfigError("FIELD: '{0}' is a file; did you mean {0} --check or --defaults {0}?",
                      options.field);
  const std::vector<config::FieldReference> found = config::find_references(options.field);
  if (options.field.empty()) {
    list(found);
  } else {
    for (const config::FieldReference& field : found) {
      if (&field != &found.front()) fmt::print("\n");
      explain(field);
    }
  }
  if (options.json.empty()) return;
  Json fields = Json::array();
  for (const config::FieldReference& field : found) fields.push_back(json_of(field));
  write_json(options.json, fields);
}

// Runs all checks that need no data. Throws ConfigError.
void check_file(const ConfigOptions& options) {
  if (options.field.empty()) throw ConfigError("--check: needs the path of a config file");
  const ConfigText found = read_config_at(options.field);
  const RunConfig config = run::read_config(found.text, found.origin, {.set = options.set});
  const run::OpenedConfig opened = run::open_config(config, /*run_follows=*/false);
  run::check_config(opened);
  run::choose_lanes(opened);
  fmt::print("config is valid\n");
}

ExitCode run_config(Session& session, const ConfigOptions& options) {
  collectives::run_on_root(session.communicator(), [&] {
    const int asked = (options.field.empty() ? 0 : 1) + (options.defaults.empty() ? 0 : 1) +
                      (options.reference ? 1 : 0);
    if (asked > 1) throw ConfigError("config: allowed: one of FIELD, --defaults and --reference");
    if (options.check && (options.reference || !options.defaults.empty() || !options.json.empty()))
      throw ConfigError("--check: allowed only with a config file and --set");
    if (!options.set.empty() && options.defaults.empty() && !options.check)
      throw ConfigError("--set: allowed: only with --defaults CONFIG or CONFIG --check");
    require_result_path("--json", options.json);
    if (options.check) {
      check_file(options);
    } else if (!options.defaults.empty()) {
      const std::filesystem::path file = find_config(options.defaults).file;
      if (file.empty())
        throw ConfigError(
            "--defaults: '{}' is a checkpoint; allowed: a config file or a run folder",
            options.defaults);
      data::validate_data(config::load_config(file, options.set, huggingface::find_model));
      fmt::print("{}", config::complete_text(file, options.set, huggingface::find_model));
    } else if (options.reference) {
      fmt::print("{}", config::reference_page());
    } else {
      print_fields(options);
    }
  });
  return ExitCode::kOk;
}

}  // namespace

CommandSpec config_command() {
  auto options = std::make_shared<ConfigOptions>();
  CommandSpec command{.name = "config",
                      .help = "List all fields of a config, explain one, or check a config",
                      .also = "configs fields options defaults check schema"};
  command.add("FIELD",
              &options->field,
              "A field or a section, by path or name: train.lanes, lanes, optimizer.adam; with "
              "--check, a config file or a run folder");
  command.add("--check",
              &options->check,
              "Check a config file as far as is possible without data: fields, model, format of "
              "the data");
  command.add("--defaults",
              &options->defaults,
              "Print this config file in full, with the defaults of the fields that it leaves out");
  command.add("--set",
              &options->set,
              "With --defaults or --check: override a field: path.to.field=value; can be repeated",
              {.one_each_time = true});
  command.add("--reference", &options->reference, "Print the page of all fields as Markdown");
  command.add("--json", &options->json, "Write the description of the fields to this file as JSON");
  command.run = [options](Session& session) { return run_config(session, *options); };
  return command;
}

}  // namespace lockstep::launcher
