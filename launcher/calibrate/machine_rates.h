#pragma once
// Rates of this machine that need no training.

#include <filesystem>
#include <string>

namespace lockstep::launcher {

// GB/s of a copy of memory by all compute threads, bytes read and written.
double measure_copy_gbytes_per_s();

struct DiskRates {
  double write_gbytes_per_s = 0;  // of a file, synced
  double read_gbytes_per_s = 0;   // of a file that is not in memory; 0: the system keeps it there
};

// Writes and reads a file in `folder`, which is removed again. Throws IoError.
DiskRates measure_disk(const std::filesystem::path& folder);

// The date in UTC, "2026-11-30": that of a measurement.
std::string today();

}  // namespace lockstep::launcher
