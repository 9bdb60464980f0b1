#include "launcher/published/row_names.h"

#include <algorithm>
#include <cctype>
#include <regex>

#include "runtime/base/text.h"
#include "runtime/config/hardware.h"

namespace lockstep::published {
namespace {

// Hardware that rows name in another way than the program's files, with figures that differ.
struct RowHardware {
  std::string_view key, name;
  double watts = 0, memory_gbytes_per_s = 0;
};
constexpr RowHardware kHardware[] = {{"V100-SXM-16", "V100-16GB"},
                                     {"V100-SXM-32", "V100-32GB"},
                                     {"V100-SXM3-32", "V100-32GB", 350},
                                     {"V100-SXM3-32-450W", "V100-32GB", 450},
                                     {"V100-SXM", "V100-16GB"},
                                     {"V100-PCIe", "V100-PCIe-16GB"},
                                     {"V100", "V100-32GB"},
                                     {"P100", "P100-16GB"},
                                     {"A100-SXM-80", "A100-80GB"},
                                     {"A100-SXM-40", "A100-40GB"},
                                     {"A100-SXM-40-or-80", "A100-40GB"},
                                     {"A100-PCIe-40", "A100-40GB", 250},
                                     {"A100-PCIe-40GB", "A100-40GB", 250},
                                     {"A100-SXM", "A100-80GB"},
                                     {"A100", "A100-80GB"},
                                     {"A100-PCIe", "A100-80GB-PCIe"},
                                     {"A100-PCIe-80", "A100-80GB-PCIe"},
                                     {"RTX6000Ada", "RTX-6000-Ada"},
                                     {"A6000", "RTX-A6000"},
                                     {"A5000", "RTX-A5000"},
                                     {"RTXPRO6000", "RTX-PRO-6000-Workstation"},
                                     {"H100-SXM", "H100"},
                                     {"H100-SXM5", "H100"},
                                     {"H100-96GB-GT", "H100", 500, 2400},
                                     {"H200-SXM", "H200"},
                                     {"B200-SXM", "B200"},
                                     {"2xXeon-8280", "Xeon-8280"},
                                     {"2xXeon-8380", "Xeon-8380"},
                                     {"2xXeon-8480+", "Xeon-8480"},
                                     {"2xXeon-SPR", "Xeon-8480"}};

std::string lower(std::string_view text) {
  std::string all(text);
  std::ranges::transform(all, all.begin(), [](unsigned char c) { return std::tolower(c); });
  return all;
}

void replace_all(std::string& text, std::string_view from, std::string_view to) {
  for (size_t at = 0; (at = text.find(from, at)) != std::string::npos; at += to.size())
    text.replace(at, from.size(), to);
}

bool has_any(const std::string& text, std::initializer_list<const char*> parts) {
  return std::ranges::any_of(
      parts, [&](const char* part) { return text.find(part) != std::string::npos; });
}

// Letters and digits alone, without what vendors put before the product.
std::string letters(std::string_view name) {
  std::string all = lower(name);
  for (const char* brand : {"nvidia", "geforce", "tesla", "quadro"}) replace_all(all, brand, "");
  std::erase_if(all, [](unsigned char c) { return std::isalnum(c) == 0; });
  return all;
}

std::optional<Hardware> named_hardware(const std::string& name) {
  if (name.empty()) return std::nullopt;
  const std::string key = letters(name);
  for (const RowHardware& named : kHardware) {
    if (letters(named.key) != key) continue;
    Hardware hardware = *config::find_hardware(named.name);
    if (named.watts > 0) hardware.watts = named.watts;
    if (named.memory_gbytes_per_s > 0) hardware.memory_gbytes_per_s = named.memory_gbytes_per_s;
    return hardware;
  }
  for (const Hardware& hardware : config::known_hardware())
    if (letters(hardware.name) == key) return hardware;
  if (const Hardware* gpu = config::find_gpu(name)) return *gpu;
  return std::nullopt;
}

}  // namespace

std::string plain_name(std::string_view name) {
  // The owner of a repository: what follows has letters, unlike the 16 of "ViT-B/16".
  const size_t slash = name.find('/');
  if (slash != std::string_view::npos && name.substr(0, slash).find(' ') == std::string_view::npos)
    if (std::ranges::any_of(name.substr(slash),
                            [](unsigned char c) { return std::isalpha(c) != 0; }))
      name.remove_prefix(slash + 1);
  std::string plain;
  for (const char c : lower(name)) {
    const bool kept = std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '.';
    if (kept || (!plain.empty() && plain.back() != '-')) plain += kept ? c : '-';
  }
  if (plain.ends_with('-')) plain.pop_back();
  for (const auto& [from, to] : {std::pair("meta-llama", "llama"),
                                 std::pair("llama2", "llama-2"),
                                 std::pair("llama3", "llama-3"),
                                 std::pair("gpt-2", "gpt2"),
                                 std::pair("qwen-2", "qwen2"),
                                 std::pair("res-net", "resnet"),
                                 std::pair("inceptionv3", "inception-v3"),
                                 std::pair("inception3", "inception-v3"),
                                 std::pair("efficientnetb", "efficientnet-b"),
                                 std::pair("unet", "u-net")})
    replace_all(plain, from, to);
  return plain;
}

double parameters_in(const std::string& plain_name) {
  static const std::regex kSize("(^|-)(\\d+(\\.\\d+)?)(b|m)(-|$)");
  std::smatch match;
  if (!std::regex_search(plain_name, match, kSize)) return 0;
  return std::stod(match[2]) * (match[4] == "b" ? 1e9 : 1e6);
}

std::optional<Hardware> hardware_of(const PublishedRow& row, std::string* why) {
  for (const char* column : {"device_key", "device"})
    if (std::optional<Hardware> hardware = named_hardware(row.text(column))) return hardware;
  *why = "no hardware file of " + in_quotes(row.text("device_key"));
  return std::nullopt;
}

Arithmetic arithmetic_of(const PublishedRow& row) {
  const std::string precision = lower(row.text("precision"));
  // Rows in FP8 and FP4 are not scored; they are predicted in 16 bits.
  if (has_any(precision, {"fp16", "bf16", "float16", "half", "amp", "mixed", "fp8", "fp4"}))
    return Arithmetic::kHalf;
  return has_any(precision, {"tf32"}) ? Arithmetic::kTf32 : Arithmetic::kFp32;
}

std::string unit_of(const PublishedRow& row) {
  std::string unit = lower(row.text("unit"));
  for (const auto& [from, to] : {std::pair("/second", "/s"),
                                 std::pair("/sec", "/s"),
                                 std::pair("/gpu", "/device"),
                                 std::pair("tflops", "tflop/s"),
                                 std::pair("tok/s", "tokens/s"),
                                 std::pair("ms/step", "ms/iteration"),
                                 std::pair("minutes", "min")})
    replace_all(unit, from, to);
  return unit;
}

}  // namespace lockstep::published
