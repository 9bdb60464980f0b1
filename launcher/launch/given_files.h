#pragma once
// The files that a run was started with, and which of them have changed since.

#include <string>
#include <vector>

#include "runtime/config/run_config.h"

namespace lockstep::launch {

class GivenFiles {
 public:
  // Adds a file or folder, what names it ("--hostfile", "model.onnx.file"), and the consequence of
  // a change. It need not exist.
  void add(const std::string& path, const std::string& named_by, const std::string& meaning);
  // Adds all files and folders that the config's fields name, except those that the run writes.
  void add_named_in(const RunConfig& config);

  // The states of all files as one text. Waits for disks.
  std::string states() const;
  // Returns a line for each file whose state in `states` differs from the last one. Large files are
  // compared by size and time.
  std::vector<std::string> changes(const std::string& states);

 private:
  struct Given {
    std::string path, named_by, meaning, state;
  };
  std::vector<Given> files_;
};

}  // namespace lockstep::launch
