#pragma once
// The files that a run was started with, and which of them have changed since.

#include <string>
#include <vector>

#include "runtime/config/run_config.h"

namespace lockstep::launch {

class GivenFiles {
 public:
  // A file or folder, what names it ("--hostfile", "model.onnx.file"), and what a change of it means.
  // One that is not there is watched too.
  void add(const std::string& path, const std::string& named_by, const std::string& meaning);
  // All files and folders that the fields of a config name, but for those that the run writes.
  void add_named_in(const RunConfig& config);

  // The states of all files, as one text. Waits for disks.
  std::string states() const;
  // A line about each file whose state in `states` differs from that before, large files by size and
  // time.
  std::vector<std::string> changes(const std::string& states);

 private:
  struct Given {
    std::string path, named_by, meaning, state;
  };
  std::vector<Given> files_;
};

}  // namespace lockstep::launch
