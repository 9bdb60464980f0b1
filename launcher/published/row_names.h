#pragma once
// The names in rows, which people spell differently: networks, hardware, precision and units.

#include <optional>
#include <string>
#include <string_view>

#include "launcher/published/published_rows.h"

namespace lockstep::published {

// One spelling of a network's name: "meta-llama/Meta-Llama-3-8B" and "Llama 3 8B" are "llama-3-8b".
std::string plain_name(std::string_view name);

// The parameters that a plain name states: 7e9 of "decoder-7b". 0: it states none.
double parameters_in(const std::string& plain_name);

// The hardware by the column device_key, otherwise by device. `why`: its name, if it is unknown.
std::optional<Hardware> hardware_of(const PublishedRow& row, std::string* why);

Arithmetic arithmetic_of(const PublishedRow& row);

// One spelling of the column unit: "tokens/sec/GPU" is "tokens/s/device".
std::string unit_of(const PublishedRow& row);

}  // namespace lockstep::published
