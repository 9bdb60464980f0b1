#include "runtime/checkpoint/format/writer.h"

#include <algorithm>
#include <system_error>
#include <utility>

#include "runtime/base/error.h"
#include "runtime/base/file.h"
#include "runtime/checkpoint/format/file_layout.h"
#include "runtime/checkpoint/format/folder.h"
#include "runtime/checkpoint/format/publish.h"
#include "runtime/checkpoint/format/shards.h"

namespace lockstep::checkpoint {
namespace {

namespace fs = std::filesystem;

FileRecord record_of(const fs::path& path, WrittenFile written) {
  return {
      path.filename().string(), written.bytes, written.header_checksum, std::move(written.tensors)};
}

}  // namespace

WrittenFile write_model_file(const fs::path& path,
                             const std::vector<NamedSlice>& slices,
                             const float* flat,
                             std::map<std::string, std::string> metadata,
                             const WriteOptions& options) {
  std::vector<F32Tensor> tensors;
  // Copies of the parameters that the file has in another order.
  std::vector<std::vector<float>> reordered;
  reordered.reserve(slices.size());
  for (const NamedSlice& slice : slices) {
    const auto elements = static_cast<size_t>(slice.shape.elements());
    const float* values = flat + slice.offset;
    if (is_reordered(slice)) {
      reordered.emplace_back(elements);
      to_file_order(slice, values, reordered.back().data());
      values = reordered.back().data();
    }
    tensors.push_back({slice.name, file_extents(slice), {values, elements}});
  }
  metadata["format"] = "pt";  // declares row-major tensors, as in PyTorch, to Python libraries
  return write_safetensors(path, std::move(tensors), metadata, options);
}

CheckpointWriter::CheckpointWriter(const fs::path& root,
                                   int64_t step,
                                   Reach reach,
                                   int64_t generation)
    : root_(fs::absolute(root).lexically_normal()),
      temporary_(root_ / temporary_name(step, generation)),
      final_(root_ / checkpoint_name(step)),
      step_(step),
      reach_(reach) {
  options_.durable = reach == Reach::kAllHosts;
  LOCKSTEP_CHECK(step >= 0);
}

CheckpointWriter CheckpointWriter::begin(const fs::path& root,
                                         int64_t step,
                                         Reach reach,
                                         int64_t generation) {
  CheckpointWriter writer(root, step, reach, generation);
  std::error_code code;
  fs::create_directories(writer.root_, code);
  if (code) throw IoError("create", writer.root_, code.value());
  remove_leftovers(writer.root_);
  fs::create_directory(writer.temporary_, code);
  if (code) throw IoError("create", writer.temporary_, code.value());
  return writer;
}

CheckpointWriter CheckpointWriter::join(const fs::path& root,
                                        int64_t step,
                                        Reach reach,
                                        int64_t generation) {
  CheckpointWriter writer(root, step, reach, generation);
  std::error_code code;
  if (!fs::is_directory(writer.temporary_, code)) {
    throw CheckpointError(
        "{}: does not exist on this host though rank 0 has created it: the run "
        "folder must be on a file system that all hosts share",
        writer.temporary_.string());
  }
  return writer;
}

FileRecord CheckpointWriter::write_model(const std::vector<NamedSlice>& slices,
                                         const float* flat) const {
  const fs::path path = temporary_ / kModelFile;
  return record_of(
      path,
      write_model_file(path, slices, flat, {{"lockstep_step", std::to_string(step_)}}, options_));
}

FileRecord CheckpointWriter::write_optimizer_shard(int64_t rank,
                                                   int64_t ranks,
                                                   const std::vector<MomentShard>& moments) const {
  LOCKSTEP_CHECK(rank >= 0 && rank < ranks && ranks <= kMaxCheckpointRanks);
  std::vector<F32Tensor> tensors;
  for (const MomentShard& moment : moments) {
    for (const MomentSlice& slice : moment.slices) {
      const int64_t end = slice.begin + slice.elements();
      for (int64_t begin = slice.begin; begin < end;) {
        const int64_t next =
            std::min(end, (begin / kMomentChunkElements + 1) * kMomentChunkElements);
        F32Tensor& tensor = tensors.emplace_back(
            F32Tensor{fmt::format("{}.{}", moment.name, begin), {next - begin}, {}});
        const auto first = static_cast<size_t>(begin - slice.begin),
                   count = static_cast<size_t>(next - begin);
        if (!slice.blocks.empty()) {
          tensor.blocks = slice.blocks.subspan(first / kMomentBlock, count / kMomentBlock);
          tensor.shape = {(next - begin) / kMomentBlock, sizeof(MomentBlock)};
        } else if (!slice.halves.empty()) {
          tensor.halves = slice.halves.subspan(first, count);
        } else {
          tensor.values = slice.values.subspan(first, count);
        }
        begin = next;
      }
    }
  }
  const fs::path path = temporary_ / optimizer_file_name(rank, ranks);
  return record_of(
      path,
      write_safetensors(
          path, std::move(tensors), {{"lockstep_step", std::to_string(step_)}}, options_));
}

fs::path CheckpointWriter::commit(const CheckpointState& state) const {
  LOCKSTEP_CHECK(
      state.step == step_, "state of step {} in a checkpoint of step {}", state.step, step_);
  const std::vector<std::string> problems = find_inconsistencies(state);
  if (!problems.empty()) {
    throw CheckpointError("{}: not committed: {}", temporary_.string(), problems.front());
  }
  for (const FileRecord& record : state.files) {
    std::error_code code;
    const fs::path path = temporary_ / record.name;
    const uint64_t size = fs::file_size(path, code);
    if (code && reach_ == Reach::kThisHost) continue;  // another host has it
    if (code || size != record.size) {
      throw CheckpointError(
          "{}: {}, but its writer reported {} bytes: the run folder must be on "
          "a file system that all hosts share",
          path.string(),
          code ? code.message() : fmt::format("has {} bytes", size),
          record.size);
    }
  }
  const std::string text = to_text(state);
  if (text.size() > kMaxStateBytes) {
    throw CheckpointError(
        "{}: {} has {} bytes, but at most {} are allowed; a larger comm.bucket_mib "
        "makes fewer pieces",
        temporary_.string(),
        kStateFile,
        text.size(),
        kMaxStateBytes);
  }
  FileWriter writer(temporary_ / kStateFile);
  writer.write(text);
  options_.durable ? writer.finish() : writer.close();
  sync_folder(temporary_);
  sync_folder(root_.parent_path());  // the root folder may be new: makes its name durable
  if (check_) check_();
  publish_checkpoint(temporary_, final_);
  return final_;
}

void CheckpointWriter::abandon() const noexcept {
  std::error_code ignored;
  fs::remove_all(temporary_, ignored);
}

}  // namespace lockstep::checkpoint
