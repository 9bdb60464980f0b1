#include "launcher/forecast/hardware_option.h"

#include <cctype>
#include <charconv>

#include "runtime/base/error.h"
#include "runtime/base/file.h"
#include "runtime/base/names.h"
#include "runtime/base/text.h"

namespace lockstep::launcher {
namespace {

// Used by the context and by the kernels and buffers of cuBLASLt, cuDNN and NCCL.
constexpr double kTakenGib = 1.5;
constexpr double kMaxGib = 1000;  // so that 4090 is no memory
constexpr size_t kMaxFileBytes = size_t{1} << 20;

// "rtx4090" for "RTX-4090".
std::string plain(std::string_view name) {
  std::string plain;
  for (const char c : name)
    if (std::isalnum(static_cast<unsigned char>(c)) != 0)
      plain += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return plain;
}

PlannedHardware planned(const Hardware& hardware) {
  if (hardware.kind != Hardware::Kind::kGpu) return {hardware};
  return {hardware, true, static_cast<size_t>((hardware.memory_gib - kTakenGib) * 0x1p30)};
}

// " did you mean H100?", or nothing.
std::string suggestion(const std::string& name, bool is_number, const std::string& after_number) {
  std::string meant;
  for (const Hardware& hardware : config::known_hardware()) {
    const std::string known = plain(hardware.name), given = plain(name);
    const bool part =
        name.size() > 3 && (known.starts_with(given) || (is_number && known.ends_with(given)));
    if (known == given || part) append_item(meant, hardware.name, " or ");
  }
  if (const Hardware* gpu = config::find_gpu(name); meant.empty() && gpu != nullptr)
    meant = gpu->name;  // H100 SXM
  if (meant.empty() && !is_number && plain(after_number).starts_with('g'))
    meant = name.substr(0, name.size() - after_number.size());  // 80GB
  return meant.empty() ? "" : fmt::format(" did you mean {}?", meant);
}

}  // namespace

PlannedHardware planned_hardware(const std::string& flag, const std::string& name) {
  if (const Hardware* hardware = config::find_hardware(name)) return planned(*hardware);
  if (name.find('/') != std::string::npos || has_suffix(name, ".textproto")) {
    const Hardware hardware = config::parse_hardware(read_file(name, kMaxFileBytes), name);
    if (hardware.name.empty())
      throw ConfigError("{} {}: describes no hardware, because it has no name", flag, name);
    return planned(hardware);
  }
  if (name.starts_with("NVIDIA ")) {
    if (const Hardware* gpu = config::find_gpu(name)) return planned(*gpu);
  }
  double gib = 0;
  const auto [end, code] = std::from_chars(name.data(), name.data() + name.size(), gib);
  const bool begins = code == std::errc();
  const bool is_number = begins && end == name.data() + name.size();
  if (is_number && gib > kTakenGib && gib <= kMaxGib) {
    Hardware unknown;
    unknown.memory_gib = gib;
    PlannedHardware memory = planned(unknown);
    memory.described = false;
    return memory;
  }
  std::string names;
  for (const Hardware& hardware : config::known_hardware()) append_item(names, hardware.name);
  throw ConfigError(
      "{}: value is {};{} allowed: {}, the path of a hardware file, or a GPU's memory in GiB, "
      "above {} and at most {}",
      flag,
      in_quotes(name),
      suggestion(name, is_number, begins ? std::string(end) : ""),
      names,
      kTakenGib,
      kMaxGib);
}

}  // namespace lockstep::launcher
