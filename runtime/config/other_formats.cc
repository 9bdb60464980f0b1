#include "runtime/config/text_parts.h"

#include <algorithm>
#include <cctype>
#include <vector>

#include "runtime/base/error.h"
#include "runtime/base/file_kind.h"
#include "runtime/base/names.h"
#include "runtime/base/text.h"

namespace lockstep::config {
namespace {

constexpr std::string_view kConfig = "a config in protobuf text format or JSON";

struct Format {
  std::string_view name, remedy;
};
constexpr Format kYaml = {
    "YAML",
    "to convert it: python3 -c \"import json, sys, yaml; "
    "print(json.dumps(yaml.safe_load(open(sys.argv[1])), indent=1))\" FILE > FILE.json"};
constexpr Format kToml = {
    "TOML",
    "to convert it: python3 -c \"import json, sys, tomllib; "
    "print(json.dumps(tomllib.load(open(sys.argv[1], 'rb')), indent=1))\" FILE > FILE.json"};
constexpr Format kIni = {"an INI file", ""};
constexpr Format kPython = {"a Python program", ""};
constexpr Format kMarkdown = {"Markdown", "remove the lines that begin with ```"};
constexpr Format kArray = {"a JSON array", "allowed in JSON: one object, in braces"};
constexpr Format kNone = {"", ""};

// Fields at the top of other programs' configs, in YAML or JSON.
struct OtherProgram {
  std::string_view field, name, remedy;
};
constexpr std::string_view kFields = "its fields are others: see configs/README.md";
constexpr OtherProgram kPrograms[] = {
    {"architectures",
     "the config.json of a Hugging Face model",
     "give its folder in a config: model { from: \"FOLDER\" }"},
    {"model_type",
     "the config.json of a Hugging Face model",
     "give its folder in a config: model { from: \"FOLDER\" }"},
    {"base_model_name_or_path", "the config of a LoRA adapter (PEFT)", kFields},
    {"per_device_train_batch_size", "a config of Hugging Face's Trainer", kFields},
    {"train_micro_batch_size_per_gpu", "a config of DeepSpeed", kFields},
    {"zero_optimization", "a config of DeepSpeed", kFields},
    {"base_model", "a config of Axolotl", kFields},
    {"finetuning_type", "a config of LLaMA-Factory", kFields},
    {"compute_environment", "a config of Accelerate", kFields},
    {"added_tokens", "a tokenizer.json", kFields},
};

size_t indent_of(std::string_view line) {
  return std::min(line.find_first_not_of(" \t"), line.size());
}

bool is_word(std::string_view text) {
  return !text.empty() && std::ranges::all_of(text, [](unsigned char c) {
    return std::isalnum(c) != 0 || c == '_' || c == '-' || c == '.';
  });
}

// "name" of a line such as "name: 3"; empty for others.
std::string_view yaml_name(std::string_view line) {
  line = trimmed(line);
  const size_t colon = line.find(':');
  if (colon == std::string_view::npos || !is_word(line.substr(0, colon))) return {};
  const bool ends = colon + 1 == line.size() || line[colon + 1] == ' ' || line[colon + 1] == '\t';
  return ends ? line.substr(0, colon) : std::string_view();
}

// Whether a line has only a name and a colon, perhaps with a comment.
bool opens_section(std::string_view line) {
  const std::string_view name = yaml_name(line);
  if (name.empty()) return false;
  const std::string_view rest = trimmed(trimmed(line).substr(name.size() + 1));
  return rest.empty() || rest.starts_with('#');
}

bool is_yaml(const std::vector<std::string_view>& lines) {
  if (lines[0].starts_with("---") || lines[0].starts_with("%YAML")) return true;
  for (size_t i = 0; i + 1 < lines.size(); ++i) {
    const std::string_view next = trimmed(lines[i + 1]);
    if (!opens_section(lines[i])) continue;
    if (next.starts_with("- ") && indent_of(lines[i + 1]) >= indent_of(lines[i])) return true;
    if (!yaml_name(next).empty() && indent_of(lines[i + 1]) > indent_of(lines[i])) return true;
  }
  return false;
}

// "[model]", or "lr = 0.1".
bool is_toml(std::string_view line) {
  if (line.starts_with('[') && line.ends_with(']')) {
    line = line.substr(1, line.size() - 2);
    if (line.starts_with('[') && line.ends_with(']')) line = line.substr(1, line.size() - 2);
    return is_word(line);
  }
  const size_t equals = line.find('=');
  return equals != std::string_view::npos && is_word(trimmed(line.substr(0, equals)));
}

bool is_python(const std::vector<std::string_view>& lines) {
  return std::ranges::any_of(lines, [](std::string_view line) {
    const bool begins = line.starts_with("import ") || line.starts_with("def ") ||
                        line.starts_with("class ") || line.starts_with("from ");
    const bool opens =
        (line.starts_with("def ") || line.starts_with("class ")) && trimmed(line).ends_with(':');
    const bool makes = line.find("= dict(") != std::string_view::npos;
    return opens || makes || (begins && line.find_first_of(":{") == std::string_view::npos);
  });
}

// The lines that are neither blank nor comments.
std::vector<std::string_view> lines_of(std::string_view text) {
  std::vector<std::string_view> lines;
  Lines reader(text);
  for (std::string_view line; reader.next(&line);)
    if (!trimmed(line).empty() && !trimmed(line).starts_with('#')) lines.push_back(line);
  return lines;
}

Format format_of(const std::vector<std::string_view>& lines, const std::string& path) {
  if (has_suffix(path, ".yaml") || has_suffix(path, ".yml")) return kYaml;
  if (has_suffix(path, ".toml")) return kToml;
  if (has_suffix(path, ".ini")) return kIni;
  if (has_suffix(path, ".py")) return kPython;
  if (lines.empty()) return kNone;
  const std::string_view first = trimmed(lines[0]);
  if (first.starts_with("```")) return kMarkdown;
  if (is_python(lines)) return kPython;
  if (is_toml(first)) return kToml;
  if (first.starts_with('[')) {
    const std::string_view rest = trimmed(first.substr(1));
    if (rest.starts_with('{') ||
        (rest.empty() && lines.size() > 1 && trimmed(lines[1]).starts_with('{')))
      return kArray;
  }
  return is_yaml(lines) ? kYaml : kNone;
}

// Whether JSON text has a member of that name, or YAML a line that begins with it.
bool has_field(std::string_view text,
               const std::vector<std::string_view>& lines,
               std::string_view field) {
  const std::string quoted = fmt::format("\"{}\"", field);
  if (const size_t found = text.find(quoted); found != std::string_view::npos)
    return trimmed(text.substr(found + quoted.size())).starts_with(':');
  return std::ranges::any_of(lines, [&](std::string_view line) {
    return line.starts_with(field) && yaml_name(line) == field;
  });
}

const OtherProgram* program_of(std::string_view text, const std::vector<std::string_view>& lines) {
  for (const OtherProgram& program : kPrograms)
    if (has_field(text, lines, program.field)) return &program;
  return nullptr;
}

}  // namespace

void refuse_binary_config(std::string_view text, const std::string& origin) {
  if (const FileKind kind = file_kind(text); kind)
    throw ConfigError("{}: {}", origin, is_not(text, kConfig));
  if (const std::string_view encoding = utf16_name(text); !encoding.empty())
    throw ConfigError("{}: is UTF-16 text, not {}; to convert it: iconv -f {} -t UTF-8 FILE",
                      origin,
                      kConfig,
                      encoding);
}

std::string name_other_format(std::string_view text,
                              const std::string& origin,
                              std::string_view error) {
  const std::vector<std::string_view> lines = lines_of(text);
  const Format format = format_of(lines, origin);
  const bool foreign_field = error.find("' in the config") != std::string_view::npos;
  if (foreign_field || !format.name.empty())
    if (const OtherProgram* program = program_of(text, lines); program != nullptr)
      return fmt::format("{}: is {}, not {}; {}", origin, program->name, kConfig, program->remedy);
  if (format.name.empty()) return "";
  return fmt::format("{}: is {}, not {}{}{}",
                     origin,
                     format.name,
                     kConfig,
                     format.remedy.empty() ? "" : "; ",
                     format.remedy);
}

}  // namespace lockstep::config
