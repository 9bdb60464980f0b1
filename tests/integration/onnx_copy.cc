// Reads ONNX files and writes them again, once as they are, once with every initializer replaced by
// its own elements. Paths come on stdin, one a line.
//
//   onnx_copy FOLDER     where the copies are made; prints for each path:
//                        PATH<tab>same, different or refused<tab>why

#include <fmt/format.h>

#include <filesystem>
#include <iostream>
#include <map>

#include "models/onnx/network.h"
#include "models/onnx/write/write_file.h"
#include "runtime/base/error.h"
#include "runtime/base/file.h"

namespace lockstep::onnx {
namespace {

bool equal_files(const std::string& a, const std::string& b) {
  return lockstep::read_file(a, kLargestFile) == lockstep::read_file(b, kLargestFile);
}

std::map<std::string, Array> elements_of(const File& file) {
  std::map<std::string, Array> elements;
  for (const Initializer& initializer : file.initializers)
    if (initializer.array.type != ElementType::kString)
      elements[initializer.name] = initializer.array;
  for (const FileValue& value : file.values)
    if (value.constant && !value.of_function && is_floating(value.constant->type))
      elements[value.name] = *value.constant;
  return elements;
}

std::string copy(const std::string& path, const std::string& target) {
  try {
    const File file = read_file(path);
    bool same = true;
    for (const auto& replaced : {std::map<std::string, Array>(), elements_of(file)}) {
      write_file(path, target, replaced);
      same = same && equal_files(path, target);
      if (std::filesystem::exists(path + ".data"))
        same = same && equal_files(path + ".data", target + ".data");
    }
    return same ? "same\t" : "different\t";
  } catch (const ConfigError& error) {
    return fmt::format("refused\t{}", error.what());
  }
}

}  // namespace
}  // namespace lockstep::onnx

int main(int argc, char** argv) {
  if (argc != 2) return 2;
  for (std::string path; std::getline(std::cin, path);) {
    // Under its own name: a file names what lies beside it.
    const auto target = std::filesystem::path(argv[1]) / std::filesystem::path(path).filename();
    fmt::print("{}\t{}\n", path, lockstep::onnx::copy(path, target.string()));
  }
}
