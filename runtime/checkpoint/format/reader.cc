#include "runtime/checkpoint/format/reader.h"

#include <algorithm>
#include <map>
#include <set>

#include "runtime/base/error.h"
#include "runtime/base/file.h"
#include "runtime/base/text.h"
#include "runtime/checkpoint/format/file_layout.h"
#include "runtime/checkpoint/format/match.h"
#include "runtime/checkpoint/format/recorded_file.h"
#include "runtime/checkpoint/format/shards.h"

namespace lockstep::checkpoint {
namespace {

namespace fs = std::filesystem;

// The elements of a moment that a T holds: a float or a MomentBlock.
template <typename T>
constexpr int64_t kElementsOf = std::is_same_v<T, MomentBlock> ? kMomentBlock : 1;

// Elements [begin, begin + elements) of the stored moment go to out.
template <typename T>
struct Copy {
  int64_t begin = 0, elements = 0;
  T* out = nullptr;
};

template <typename T>
std::vector<Copy<T>> plan_copies(const std::vector<NamedSlice>& stored,
                                 const std::vector<NamedSlice>& slices,
                                 const std::vector<MomentTargetOf<T>>& targets) {
  constexpr int64_t kUnit = kElementsOf<T>;
  std::map<std::string, int64_t> stored_offset;
  for (const NamedSlice& slice : stored) stored_offset[slice.name] = slice.offset;
  std::vector<Copy<T>> copies;
  for (const MomentTargetOf<T>& target : targets) {
    const int64_t target_end = target.begin + static_cast<int64_t>(target.values.size()) * kUnit;
    for (const NamedSlice& slice : slices) {
      // The last block of a parameter has padding.
      const int64_t elements = (slice.shape.elements() + kUnit - 1) / kUnit * kUnit;
      const int64_t begin = std::max(target.begin, slice.offset);
      const int64_t end = std::min(target_end, slice.offset + elements);
      if (begin >= end) continue;
      copies.push_back({stored_offset.at(slice.name) + begin - slice.offset,
                        end - begin,
                        target.values.data() + (begin - target.begin) / kUnit});
      if (copies.back().begin % kUnit != 0)
        throw CheckpointError("the blocks of the moments of {} are not aligned",
                              quote_name(slice.name));
    }
  }
  std::ranges::sort(copies, {}, &Copy<T>::begin);
  return copies;
}

// Reads a slice: calls read(out) for the values in file order and stores them in memory order.
template <typename Read>
void read_slice(const NamedSlice& slice, float* flat, Read&& read) {
  float* const to = flat + slice.offset;
  if (!is_reordered(slice)) return read(to);
  std::vector<float> values(static_cast<size_t>(slice.shape.elements()));
  read(values.data());
  from_file_order(slice, values.data(), to);
}

// Those of `shapes` whose names begin with `layer`.
ShapeByName of_layer(ShapeByName shapes, const std::string& layer) {
  std::erase_if(shapes, [&](const auto& tensor) { return !tensor.first.starts_with(layer); });
  return shapes;
}

// The mismatches of the head's tensors, whose names begin with `head`. Empty if the head can be
// read.
std::vector<std::string> head_mismatches(const std::string& head,
                                         const ShapeByName& found,
                                         const ShapeByName& expected) {
  if (head.empty()) return {};
  return list_mismatches(of_layer(found, head), of_layer(expected, head));
}

// Throws unless the piece lies inside the flat buffer and begins at or after `covered`, the end of
// the pieces before it.
void check_position(const MomentPiece& piece,
                    const CheckpointState& state,
                    int64_t covered,
                    const std::string& moment) {
  if (piece.begin >= covered && piece.elements <= state.trained_elements() &&
      piece.begin <= state.trained_elements() - piece.elements)
    return;
  throw CheckpointError(
      "{}: the piece of moment {} at flat element {} is stored twice or lies outside the flat "
      "buffer",
      state.files[piece.file].name,
      quote_name(moment),
      piece.begin);
}

// Copies the elements of a piece that `copies` lists, from copies[first] on. `values` has the
// piece's elements. Returns the number of elements copied.
template <typename T>
int64_t copy_piece(const MomentPiece& piece,
                   const std::vector<T>& values,
                   const std::vector<Copy<T>>& copies,
                   size_t first) {
  constexpr int64_t kUnit = kElementsOf<T>;
  const int64_t piece_end = piece.begin + piece.elements;
  int64_t copied = 0;
  for (size_t i = first; i < copies.size() && copies[i].begin < piece_end; ++i) {
    const int64_t begin = std::max(copies[i].begin, piece.begin);
    const int64_t end = std::min(copies[i].begin + copies[i].elements, piece_end);
    if (begin >= end) continue;
    std::copy(values.begin() + (begin - piece.begin) / kUnit,
              values.begin() + (end - piece.begin) / kUnit,
              copies[i].out + (begin - copies[i].begin) / kUnit);
    copied += end - begin;
  }
  return copied;
}

}  // namespace

CheckpointState read_state(const fs::path& folder) {
  const fs::path path = folder / kStateFile;
  return parse_state(read_file(path, kMaxStateBytes), path.string());
}

void read_model(const fs::path& folder,
                const CheckpointState& state,
                const std::vector<NamedSlice>& slices,
                float* flat) {
  const auto record = std::ranges::find(state.files, kModelFile, &FileRecord::name);
  if (record == state.files.end()) {
    throw CheckpointError("{}: {} does not list {}", folder.string(), kStateFile, kModelFile);
  }
  const SafetensorsFile file = open_recorded(folder, *record);
  require_match(shapes_of(file), shapes_in_files(slices), file.path());
  std::map<std::string, const TensorRecord*> records;
  for (const TensorRecord& tensor : record->tensors) records[tensor.name] = &tensor;
  for (const NamedSlice& slice : slices) {
    const auto tensor = records.find(slice.name);
    if (tensor == records.end()) {
      throw CheckpointError("{}: {} has no checksum of tensor {}",
                            folder.string(),
                            kStateFile,
                            quote_name(slice.name));
    }
    const SafetensorsEntry& entry = entry_of(file, *tensor->second);
    read_slice(slice, flat, [&](float* out) {
      if (!read_checked(file, entry, tensor->second->checksum, out))
        throw CheckpointError("{}", damaged(file, entry));
    });
  }
}

std::string last_layer_of(const std::vector<NamedSlice>& slices) {
  const std::string& last = slices.back().name;
  const std::string layer = last.substr(0, last.rfind('.') + 1);
  bool has_matrix = false, has_body = false;
  for (const NamedSlice& slice : slices) {
    has_matrix |= slice.name == layer + "weight" && slice.shape.rank() == 2;
    has_body |= !slice.name.starts_with(layer);
  }
  return has_matrix && has_body ? layer : "";
}

std::string new_head_of(const fs::path& path, const std::vector<NamedSlice>& slices) {
  const std::string head = last_layer_of(slices);
  const ShapeByName expected = shapes_in_files(slices);
  const ShapeByName found = plain_tensors(SafetensorsFile(path), names_of(expected)).shapes;
  return head_mismatches(head, found, expected).empty() ? "" : head;
}

WeightsRead read_model_file(const fs::path& path,
                            const std::vector<NamedSlice>& slices,
                            float* flat) {
  const SafetensorsFile file(path);
  ShapeByName expected = shapes_in_files(slices);
  const PlainTensors tensors = plain_tensors(file, names_of(expected));
  ShapeByName found = tensors.shapes;
  const std::string head = last_layer_of(slices);
  const std::vector<std::string> mismatches = head_mismatches(head, found, expected);
  std::vector<NamedSlice> read = slices;
  WeightsRead result;
  if (!tensors.note.empty()) result.notes.push_back(tensors.note);
  if (!mismatches.empty()) {
    const auto of_head = [&](const auto& tensor) { return tensor.first.starts_with(head); };
    std::erase_if(found, of_head);
    std::erase_if(expected, of_head);
    std::erase_if(read, [&](const NamedSlice& slice) { return slice.name.starts_with(head); });
    result.new_head = true;
    result.notes.push_back(fmt::format("{}: the layer {} is initialised from scratch: {}",
                                       file.path(),
                                       head.substr(0, head.size() - 1),
                                       mismatches.front()));
  }
  require_match(found, expected, file.path());
  read_tensors(
      file, read, [&](const std::string& name) { return tensors.name_in_file.at(name); }, flat);
  return result;
}

void read_tensors(const SafetensorsFile& file,
                  const std::vector<NamedSlice>& slices,
                  const std::function<std::string(const std::string&)>& name_in_file,
                  float* flat) {
  for (const NamedSlice& slice : slices) {
    read_slice(slice, flat, [&](float* out) {
      file.read_weights(*file.find(name_in_file(slice.name)), out);
    });
  }
}

namespace {

template <typename T>
void read_moment(const fs::path& folder,
                 const CheckpointState& state,
                 const std::vector<NamedSlice>& slices,
                 const std::string& moment,
                 const std::vector<MomentTargetOf<T>>& targets) {
  if (!has_array(state, moment)) {
    throw CheckpointError(
        "{}: has no optimizer moment {}: it was written by optimizer {} with moments: {}",
        folder.string(),
        quote_name(moment),
        quote_name(state.optimizer),
        name_list(state.moments));
  }
  require_match(
      shapes_in_memory(state.layout), shapes_in_memory(slices), (folder / kStateFile).string());
  for (const MomentTargetOf<T>& target : targets) std::ranges::fill(target.values, T{});
  std::vector<Copy<T>> copies = plan_copies(state.layout, slices, targets);
  // Frozen parameters have no moments, and those of state.one_moment have no second moment.
  const std::vector<collectives::Range> holes = absent_ranges(state, moment);
  std::erase_if(copies, [&](const Copy<T>& copy) {
    const auto next = std::ranges::upper_bound(holes, copy.begin, {}, &collectives::Range::begin);
    return copy.begin >= state.trained_elements() ||
           (next != holes.begin() && copy.begin < std::prev(next)->end);
  });
  const std::vector<MomentPiece> pieces = moment_pieces(state, moment);
  std::map<size_t, SafetensorsFile> files;
  std::vector<T> values;
  int64_t copied = 0, wanted = 0;
  for (const Copy<T>& copy : copies) wanted += copy.elements;
  size_t first_copy = 0;
  int64_t covered = 0;
  for (const MomentPiece& piece : pieces) {
    const FileRecord& record = state.files[piece.file];
    check_position(piece, state, covered, moment);
    const int64_t piece_end = covered = piece.begin + piece.elements;
    while (first_copy < copies.size() &&
           copies[first_copy].begin + copies[first_copy].elements <= piece.begin) {
      ++first_copy;
    }
    if (first_copy == copies.size() || copies[first_copy].begin >= piece_end) continue;
    auto opened = files.find(piece.file);
    if (opened == files.end()) {
      opened = files.emplace(piece.file, open_recorded(folder, record)).first;
    }
    const TensorRecord& tensor = record.tensors[piece.tensor];
    const SafetensorsEntry& entry = entry_of(opened->second, tensor);
    values.resize(static_cast<size_t>(piece.elements / kElementsOf<T>));
    const auto read = [&] {
      if constexpr (std::is_same_v<T, MomentBlock>)
        return has_blocks(entry) &&
               read_blocks_checked(opened->second, entry, tensor.checksum, values.data());
      else
        return read_checked(opened->second, entry, tensor.checksum, values.data());
    };
    if (!read()) {
      throw CheckpointError("{}", damaged(opened->second, entry));
    }
    copied += copy_piece(piece, values, copies, first_copy);
  }
  if (copied != wanted) {
    throw CheckpointError("{}: the shards of moment {} lack {} of {} elements",
                          folder.string(),
                          quote_name(moment),
                          wanted - copied,
                          wanted);
  }
}

}  // namespace

void read_optimizer(const fs::path& folder,
                    const CheckpointState& state,
                    const std::vector<NamedSlice>& slices,
                    const std::string& moment,
                    const std::vector<MomentTarget>& targets) {
  read_moment(folder, state, slices, moment, targets);
}

void read_moment_blocks(const fs::path& folder,
                        const CheckpointState& state,
                        const std::vector<NamedSlice>& slices,
                        const std::string& moment,
                        const std::vector<BlockTarget>& targets) {
  read_moment(folder, state, slices, moment, targets);
}

bool has_blocks(const fs::path& folder, const CheckpointState& state, const std::string& moment) {
  const std::vector<MomentPiece> pieces = moment_pieces(state, moment);
  if (pieces.empty()) return false;
  const FileRecord& record = state.files[pieces.front().file];
  return has_blocks(entry_of(open_recorded(folder, record), record.tensors[pieces.front().tensor]));
}

void read_average(const fs::path& folder,
                  const CheckpointState& state,
                  const std::vector<NamedSlice>& slices,
                  std::span<float> flat) {
  if (!has_array(state, kAverageArray))
    throw CheckpointError(
        "{}: has no average of the weights: it was written without train.ema_decay",
        folder.string());
  read_optimizer(folder, state, slices, kAverageArray, {{0, flat}});
  if (state.frozen_elements == 0) return;
  std::vector<float> weights(flat.size());
  read_model(folder, state, slices, weights.data());
  for (const NamedSlice& slice : frozen_slices(state, slices))
    std::copy_n(weights.begin() + slice.offset,
                slice.shape.elements(),
                flat.begin() + static_cast<std::ptrdiff_t>(slice.offset));
}

std::vector<NamedSlice> frozen_slices(const CheckpointState& state,
                                      const std::vector<NamedSlice>& slices) {
  std::set<std::string> frozen;
  for (const NamedSlice& slice : state.layout)
    if (slice.offset >= state.trained_elements()) frozen.insert(slice.name);
  std::vector<NamedSlice> found;
  for (const NamedSlice& slice : slices)
    if (frozen.contains(slice.name)) found.push_back(slice);
  return found;
}

}  // namespace lockstep::checkpoint
