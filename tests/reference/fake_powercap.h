#pragma once
// A folder that looks like /sys/class/powercap.

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <string>

#include "tests/reference/temporary_folder.h"

namespace lockstep::testing {

class FakePowercap {
 public:
  // "intel-rapl:0", "package-0".
  void add(const std::string& zone, const std::string& name, uint64_t range_uj = 262'143'328'850) {
    std::filesystem::create_directories(path() / zone);
    write(zone, "name", name);
    write(zone, "max_energy_range_uj", std::to_string(range_uj));
    set(zone, 0);
  }
  // The zone's counter.
  void set(const std::string& zone, uint64_t energy_uj) {
    write(zone, "energy_uj", std::to_string(energy_uj));
  }
  const std::filesystem::path& path() const { return folder_.path(); }

 private:
  void write(const std::string& zone, const std::string& file, const std::string& text) {
    std::ofstream(path() / zone / file) << text << "\n";
  }
  TemporaryFolder folder_;
};

}  // namespace lockstep::testing
