#pragma once
// Hardware by name: the files of configs/hardware/, which are part of the program, and files of the
// user's. All functions throw ConfigError.

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/config/hardware_structs.h"

namespace lockstep::config {

// A file of configs/hardware/, as the build embeds it.
struct HardwareFile {
  const char* path;
  const char* text;
};
std::span<const HardwareFile> hardware_files();

// Parses a hardware file and checks its figures. `origin` names it in errors.
Hardware parse_hardware(const std::string& text, const std::string& origin);

// Text that parse_hardware() reads back as an equal struct. Fields at their defaults are left out.
std::string to_text(const Hardware& hardware);

// The hardware of the program's files, in the order of their names. They live as long as the
// program.
const std::vector<Hardware>& known_hardware();

// The known hardware with this name; upper and lower case are equal. Null if there is none.
const Hardware* find_hardware(std::string_view name);

// The known GPU of this name of the driver, "NVIDIA A100-SXM4-80GB": the one with the most words
// that the driver's name has in full. Null if there is none. A variant is no such GPU: an RTX 4070
// Ti, a laptop's RTX 4090, a MIG slice.
const Hardware* find_gpu(std::string_view driver_name);

// The links and prices of the program's files.
const std::vector<Link>& known_links();
const std::vector<Price>& known_prices();

// The link of this name, of `hardware` itself or among the known ones. Upper and lower case are
// equal.
const Link& find_link(const Hardware& hardware, std::string_view name);

}  // namespace lockstep::config
