#include "runtime/config/hardware.h"

#include <google/protobuf/message.h>
#include <google/protobuf/text_format.h>

#include <algorithm>
#include <cctype>
#include <map>

#include "runtime/base/error.h"
#include "runtime/base/text.h"
#include "runtime/config/names.h"
#include "runtime/config/proto_conversion.h"
#include "runtime/config/schema.h"
#include "runtime/config/text.h"

namespace lockstep::config {
namespace {

using google::protobuf::FieldDescriptor;
using google::protobuf::Message;
using google::protobuf::TextFormat;

// Words that make another model of a name, unless the hardware's own name has them.
constexpr std::string_view kVariants[] = {
    "ti", "super", "d", "laptop", "mobile", "max", "mig", "3e", "ws"};

using Words = std::vector<std::string>;

// The words of a name in lower case: the runs of letters and digits.
Words words_of(std::string_view name) {
  Words words;
  bool within = false;
  for (const char c : name) {
    const auto byte = static_cast<unsigned char>(c);
    if (std::isalnum(byte) == 0) {
      within = false;
      continue;
    }
    if (!within) words.emplace_back();
    within = true;
    words.back() += static_cast<char>(std::tolower(byte));
  }
  return words;
}

bool has(const Words& words, std::string_view word) {
  return std::ranges::find(words, word) != words.end();
}

// The paths of the figures that a file gives: its numbers, and the values of the sections gpu and
// cpu.
void append_figures(const Message& message,
                    const std::string& prefix,
                    std::vector<std::string>* paths) {
  std::vector<const FieldDescriptor*> given;
  message.GetReflection()->ListFields(message, &given);
  for (const FieldDescriptor* field : given) {
    if (field->is_repeated()) continue;
    if (field->message_type() != nullptr)
      append_figures(
          message.GetReflection()->GetMessage(message, field), field->name() + ".", paths);
    else if (field->cpp_type() == FieldDescriptor::CPPTYPE_INT64 ||
             field->cpp_type() == FieldDescriptor::CPPTYPE_DOUBLE ||
             (field->cpp_type() == FieldDescriptor::CPPTYPE_ENUM && !prefix.empty()))
      paths->push_back(prefix + field->name());
  }
}

void check_sources(const Message& message, const Hardware& hardware, const std::string& origin) {
  std::vector<std::string> given;
  append_figures(message, "", &given);
  std::map<std::string, int> sources;
  for (const FigureSource& source : hardware.sources)
    for (const std::string& figure : source.figures) ++sources[figure];
  for (const std::string& figure : given) {
    if (sources[figure] != 1)
      throw ConfigError("{}: {} has {} in `sources`; allowed: one",
                        origin,
                        figure,
                        counted(sources[figure], "source"));
    sources.erase(figure);
  }
  // What is left is of figures with their defaults.
  for (const auto& [figure, count] : sources)
    if (std::ranges::find(schema_fields(hardware_type()), figure, &SchemaField::path) ==
        schema_fields(hardware_type()).end())
      throw ConfigError(
          "{}: a source is given for {}, which is no figure", origin, in_quotes(figure));
}

// Clears the fields that have their defaults, here and below.
void drop_defaults(Message* message) {
  const auto& reflection = *message->GetReflection();
  const std::unique_ptr<Message> fresh(message->New());
  std::vector<const FieldDescriptor*> given;
  reflection.ListFields(*message, &given);
  for (const FieldDescriptor* field : given) {
    if (field->message_type() != nullptr) {
      if (!field->is_repeated()) drop_defaults(reflection.MutableMessage(message, field));
      for (int i = 0; field->is_repeated() && i < reflection.FieldSize(*message, field); ++i)
        drop_defaults(reflection.MutableRepeatedMessage(message, field, i));
      continue;
    }
    if (field->is_repeated()) continue;
    std::string value, usual;
    TextFormat::PrintFieldValueToString(*message, field, -1, &value);
    TextFormat::PrintFieldValueToString(*fresh, field, -1, &usual);
    if (value == usual) reflection.ClearField(message, field);
  }
}

// All files, in the order of the hardware's names.
struct Known {
  std::vector<Hardware> hardware;
  std::vector<Link> links;
  std::vector<Price> prices;

  Known() {
    for (const HardwareFile& file : hardware_files()) {
      Hardware read = parse_hardware(file.text, file.path);
      if (!read.name.empty()) {
        hardware.push_back(std::move(read));
        continue;
      }
      links.insert(links.end(), read.links.begin(), read.links.end());
      prices.insert(prices.end(), read.prices.begin(), read.prices.end());
    }
    std::ranges::sort(hardware, {}, &Hardware::name);
  }
};

const Known& known() {
  static const Known all;
  return all;
}

}  // namespace

Hardware parse_hardware(const std::string& text, const std::string& origin) {
  const std::unique_ptr<Message> message = parse_hardware_text(text, origin);
  Hardware hardware;
  try {
    hardware = hardware_from_proto(*message);
  } catch (const ConfigError& error) {
    throw ConfigError("{}: {}", origin, error.what());
  }
  check_sources(*message, hardware, origin);
  if (!hardware.name.empty() && hardware.memory_gbytes_per_s == 0)
    throw ConfigError("{}: memory_gbytes_per_s is missing", origin);
  for (const Link& link : hardware.links)
    if (link.gbytes_per_s == 0)
      throw ConfigError("{}: link '{}': gbytes_per_s is missing", origin, link.name);
  for (const MeasuredOp& op : hardware.ops)
    if (op.us == 0) throw ConfigError("{}: op '{}': us is missing", origin, op.op);
  return hardware;
}

std::string to_text(const Hardware& hardware) {
  const std::unique_ptr<Message> message = hardware_to_proto(hardware);
  drop_defaults(message.get());
  return print_text(*message);
}

const std::vector<Hardware>& known_hardware() { return known().hardware; }
const std::vector<Link>& known_links() { return known().links; }
const std::vector<Price>& known_prices() { return known().prices; }

const Hardware* find_hardware(std::string_view name) {
  for (const Hardware& hardware : known_hardware())
    if (words_of(hardware.name) == words_of(name)) return &hardware;
  return nullptr;
}

const Hardware* find_gpu(std::string_view driver_name) {
  const Words words = words_of(driver_name);
  const Hardware* best = nullptr;
  Words best_words;
  for (const Hardware& hardware : known_hardware()) {
    if (hardware.kind != Hardware::Kind::kGpu) continue;
    const Words own = words_of(hardware.name);
    const bool fits =
        std::ranges::all_of(own, [&](const std::string& word) { return has(words, word); });
    if (!fits || own.size() <= best_words.size()) continue;
    best = &hardware;
    best_words = own;
  }
  for (const std::string_view variant : kVariants) {
    if (has(words, variant) && !has(best_words, variant)) return nullptr;
  }
  return best;
}

const Link& find_link(const Hardware& hardware, std::string_view name) {
  std::string names;
  for (const std::vector<Link>* links : {&hardware.links, &known_links()}) {
    for (const Link& link : *links) {
      if (words_of(link.name) == words_of(name)) return link;
      append_item(names, link.name);
    }
  }
  throw ConfigError("no link is named {}; allowed: {}", in_quotes(name), names);
}

}  // namespace lockstep::config
