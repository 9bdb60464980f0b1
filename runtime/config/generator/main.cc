// generate_config SCHEMA FOLDER: generates C++ files from the schema of the configuration. SCHEMA
// is the output of `protoc --include_imports --descriptor_set_out`. A file whose text would not
// change is not written, so that nothing is recompiled because of it.

#include <google/protobuf/descriptor.h>
#include <google/protobuf/descriptor.pb.h>

#include <cstdio>
#include <exception>
#include <fstream>
#include <iterator>
#include <stdexcept>
#include <string>
#include <utility>

#include "runtime/config/generator/check_schema.h"
#include "runtime/config/generator/write_code.h"

namespace lockstep::config {
namespace {

std::string read(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

void write(const std::string& path, const std::string& text) {
  if (read(path) == text) return;
  std::ofstream file(path, std::ios::binary);
  if (!(file << text).flush()) throw std::runtime_error(path + ": cannot be written");
}

void generate(const std::string& schema_path, const std::string& folder) {
  google::protobuf::FileDescriptorSet files;
  if (!files.ParseFromString(read(schema_path)))
    throw std::runtime_error(schema_path + ": not a schema");
  resolve_likes(&files);
  google::protobuf::DescriptorPool pool;
  for (const auto& file : files.file())
    if (pool.BuildFile(file) == nullptr) throw std::runtime_error(schema_path + ": incomplete");
  for (const auto& [message, file] :
       {std::pair("RunConfig", "run_config"), std::pair("Hardware", "hardware")}) {
    const auto* root = pool.FindMessageTypeByName(std::string("lockstep.proto.") + message);
    if (root == nullptr) throw std::runtime_error(schema_path + ": has no message " + message);
    check_schema(*root);
    const std::string structs = std::string(file) + "_structs.h";
    write(folder + "/" + structs, write_structs(*root));
    write(folder + "/" + file + "_visits.h", write_visits(*root, structs));
  }
  write(folder + "/schema_bytes.cc", write_bytes(files.SerializeAsString()));
}

}  // namespace
}  // namespace lockstep::config

int main(int argc, char** argv) {
  try {
    if (argc != 3) throw std::runtime_error("usage: generate_config SCHEMA FOLDER");
    lockstep::config::generate(argv[1], argv[2]);
    return 0;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "generate_config: %s\n", error.what());
    return 1;
  }
}
