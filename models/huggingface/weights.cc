#include "models/huggingface/weights.h"

#include <algorithm>
#include <cstring>
#include <set>

#include "runtime/base/error.h"
#include "runtime/base/transpose.h"
#include "runtime/checkpoint/format/file_layout.h"
#include "runtime/checkpoint/format/match.h"
#include "runtime/checkpoint/format/wrapped_names.h"

namespace lockstep::huggingface {
namespace {

// Maps names of tensors to those in the folder, which may lack the body's prefix or be older names.
class NamesInFolder {
 public:
  NamesInFolder(const Family& family, const TensorFiles& files, const ModelConfig& model)
      : family_(family), files_(files), prefix_(family.base_prefix(model)) {
    const auto below_head = [&](const auto& tensor) { return tensor.first.starts_with(prefix_); };
    has_prefix_ = std::ranges::any_of(files.tensors(), below_head);
  }

  std::string name_of(const std::string& name) const {
    const std::string here = with_or_without_prefix(name);
    if (files_.find(here) != nullptr) return here;
    const std::string older = family_.older_name(here);
    return !older.empty() && files_.find(older) != nullptr ? older : here;
  }
  // Whether the folder's tensor belongs to a head rather than to the body.
  bool is_outside_body(const std::string& name) const {
    return has_prefix_ && !name.starts_with(prefix_);
  }
  // The name without the prefix, if it has one.
  std::string below_prefix(const std::string& name) const {
    return name.starts_with(prefix_) ? name.substr(prefix_.size()) : name;
  }
  const std::string& prefix() const { return prefix_; }

 private:
  // Folders of a body alone lack the prefix, and so do the names of a model without a head.
  std::string with_or_without_prefix(const std::string& name) const {
    if (!has_prefix_) return below_prefix(name);
    return files_.find(name) == nullptr && files_.find(prefix_ + name) != nullptr ? prefix_ + name
                                                                                  : name;
  }

  const Family& family_;
  const TensorFiles& files_;
  const std::string prefix_;
  bool has_prefix_ = false;
};

// The model's number of classes; 0 if it has none.
int64_t classes_of(const ModelConfig& model) {
  return std::visit(
      [](const auto& section) -> int64_t {
        if constexpr (requires { section.classes; }) return section.classes;
        return 0;
      },
      model);
}

std::vector<float> values(const TensorFiles::Tensor& tensor) {
  std::vector<float> all(static_cast<size_t>(tensor.entry->elements));
  read(tensor, all.data());
  return all;
}

class Filler {
 public:
  Filler(const Family& family,
         const TensorFiles& files,
         std::string origin,
         const ModelConfig& theirs,
         const ModelConfig& model,
         float* flat)
      : family_(family),
        files_(files),
        origin_(std::move(origin)),
        names_(family, files, model),
        theirs_(theirs),
        model_(model),
        flat_(flat) {}

  // All tensors are checked before the first one is read.
  checkpoint::WeightsRead fill(const std::vector<checkpoint::NamedSlice>& slices) {
    std::vector<Match> matches;
    for (const checkpoint::NamedSlice& slice : slices) matches.push_back(compare(slice));
    check_names(slices);
    std::vector<const checkpoint::NamedSlice*> found;
    for (const Match& match : matches) {
      if (check(match)) found.push_back(match.slice);
    }
    check_remaining();
    checkpoint::refuse_mismatches(origin_, mismatches_);
    for (const checkpoint::NamedSlice* slice : found) {
      for (const StoredPart& stored : stored_parts(family_, model_, *slice))
        read_part(
            *files_.find(names_.name_of(stored.part.name)), *slice, stored, flat_ + slice->offset);
    }
    return read_;
  }

 private:
  // What the folder has for a tensor of the model.
  struct Match {
    const checkpoint::NamedSlice* slice;
    bool is_complete = true;  // none of its parts is missing
    std::vector<std::string> mismatches;
  };

  Match compare(const checkpoint::NamedSlice& slice) {
    checkpoint::ShapeByName expected, in_file;
    const std::vector<TensorPart> in_folder = family_.parts(theirs_, slice.name);
    size_t number = 0;
    for (StoredPart stored : stored_parts(family_, model_, slice)) {
      const std::string name = names_.name_of(stored.part.name);
      const int64_t rows = in_folder[number++].stored_rows;
      if (rows > stored.rows) stored.extents[0] = rows;
      expected[name] = stored.extents;
      const TensorFiles::Tensor* tensor = files_.find(name);
      if (tensor == nullptr) continue;
      seen_.insert(name);
      in_file[name] = tensor->entry->shape;
    }
    if (!in_file.empty() && family_.is_head(slice.name)) heads_present_.insert(head_of(slice.name));
    return {
        &slice, in_file.size() == expected.size(), checkpoint::list_mismatches(in_file, expected)};
  }

  // Whether the tensor can be read from the folder. Otherwise records a note if it is of a new
  // head, or else its mismatches.
  bool check(const Match& match) {
    if (match.mismatches.empty()) return true;
    if (is_new(match)) {
      read_.new_head = true;
      read_.notes.push_back(fmt::format("{}: {} is initialised from scratch: {}",
                                        origin_,
                                        match.slice->name,
                                        match.mismatches.front()));
    } else {
      mismatches_.insert(mismatches_.end(), match.mismatches.begin(), match.mismatches.end());
    }
    return false;
  }

  // Whether the tensor is of a head that the folder lacks, or of a classifier for another number of
  // classes than the folder's. Any other mismatch is an error.
  bool is_new(const Match& match) const {
    const std::string& name = match.slice->name;
    if (!family_.is_head(name)) return false;
    if (!heads_present_.contains(head_of(name))) return true;
    return match.is_complete && family_.has_row_per_class(name) &&
           classes_of(theirs_) != classes_of(model_);
  }

  // "cls" for "cls.predictions.bias", "pooler" for "bert.pooler.dense.bias".
  std::string head_of(const std::string& name) const {
    const std::string below = names_.below_prefix(name);
    return below.substr(0, below.find('.'));
  }

  // Rejects a folder that has none of the body's tensors by any of their possible names.
  void check_names(const std::vector<checkpoint::NamedSlice>& slices) const {
    const auto of_body = [&](const checkpoint::NamedSlice& slice) {
      return !family_.is_head(slice.name);
    };
    const auto body = std::ranges::find_if(slices, of_body);
    if (!seen_.empty() || body == slices.end()) return;
    std::vector<std::string> in_file;
    for (const auto& [name, tensor] : files_.tensors()) in_file.push_back(name);
    throw CheckpointError(
        "{}: {}",
        origin_,
        checkpoint::compare_names(in_file, names_in_folders(family_, model_, slices)));
  }

  // Checks the folder's tensors that the model does not have.
  void check_remaining() {
    std::vector<std::string> left_out;
    for (const auto& [name, tensor] : files_.tensors()) {
      if (seen_.count(name) > 0 || family_.is_ignored_tensor(name)) continue;
      const std::string tied = family_.tied_name(model_, name);
      if (!tied.empty()) {
        check_tied(name, tensor, names_.name_of(tied));
      } else if (names_.is_outside_body(name)) {
        left_out.push_back(name);  // of another head
      } else {
        mismatches_.push_back(fmt::format("the model has no tensor '{}'", name));
      }
    }
    if (!left_out.empty())
      read_.notes.push_back(
          fmt::format("{}: skipped: {}", origin_, checkpoint::name_list(left_out)));
  }

  void check_tied(const std::string& name,
                  const TensorFiles::Tensor& tensor,
                  const std::string& to_name) {
    const TensorFiles::Tensor* to = files_.find(to_name);
    if (to == nullptr) return;  // reported as a mismatch already
    if (tensor.entry->shape == to->entry->shape && values(tensor) == values(*to)) return;
    if (family_.tied_name(theirs_, name).empty())
      mismatches_.push_back(
          fmt::format("'{}' differs from '{}' (config.json has tie_word_embeddings false), but "
                      "model.{}.tied_head is true; allowed: false",
                      name,
                      to_name,
                      config::name_of(model_)));
    else
      mismatches_.push_back(
          fmt::format("config.json ties '{}' to '{}', but they differ", name, to_name));
  }

  const Family& family_;
  const TensorFiles& files_;
  const std::string origin_;
  const NamesInFolder names_;
  const ModelConfig &theirs_, &model_;
  float* const flat_;
  std::set<std::string> seen_;           // the folder's tensors that the model has
  std::set<std::string> heads_present_;  // heads of which the folder has at least one tensor
  std::vector<std::string> mismatches_;
  checkpoint::WeightsRead read_;
};

}  // namespace

void read_part(const TensorFiles::Tensor& tensor,
               const checkpoint::NamedSlice& slice,
               const StoredPart& stored,
               float* parameter) {
  float* const out = parameter + stored.first * stored.columns;
  const int64_t elements = stored.rows * stored.columns;
  if (stored.reordered) {
    checkpoint::from_file_order(slice, values(tensor).data(), parameter);
  } else if (stored.part.transposed) {
    transpose(values(tensor).data(), stored.rows, stored.columns, out);
  } else if (tensor.entry->elements == elements) {
    read(tensor, out);
  } else {
    std::memcpy(out, values(tensor).data(), static_cast<size_t>(elements) * sizeof(float));
  }
}

std::vector<StoredPart> stored_parts(const Family& family,
                                     const ModelConfig& model,
                                     const checkpoint::NamedSlice& slice) {
  const Shape& shape = slice.shape;
  std::vector<StoredPart> parts;
  int64_t row = 0;
  for (const TensorPart& part : family.parts(model, slice.name)) {
    StoredPart stored{.part = part, .extents = {}};
    stored.first = row;
    stored.rows = part.rows > 0 ? part.rows : shape[0] / part.equal_parts;
    stored.columns = shape.elements() / shape[0];
    stored.extents = checkpoint::file_extents(slice);
    stored.extents[0] = stored.rows;
    if (part.transposed) std::swap(stored.extents[0], stored.extents[1]);
    stored.extents.insert(stored.extents.begin(), static_cast<size_t>(part.leading_ones), 1);
    stored.reordered = checkpoint::is_reordered(slice);
    row += stored.rows;
    parts.push_back(stored);
  }
  LOCKSTEP_CHECK(row == shape[0], "{}: its parts have {} rows of {}", slice.name, row, shape[0]);
  return parts;
}

std::set<std::string> names_in_folders(const Family& family,
                                       const ModelConfig& model,
                                       const std::vector<checkpoint::NamedSlice>& slices) {
  const std::string prefix = family.base_prefix(model);
  std::set<std::string> names;
  for (const checkpoint::NamedSlice& slice : slices)
    for (const TensorPart& part : family.parts(model, slice.name)) {
      const bool has_prefix = part.name.starts_with(prefix);
      for (const std::string& name :
           {part.name, has_prefix ? part.name.substr(prefix.size()) : prefix + part.name}) {
        names.insert(name);
        if (const std::string older = family.older_name(name); !older.empty()) names.insert(older);
      }
    }
  return names;
}

std::optional<std::vector<int64_t>> extents_of(const Family& family,
                                               const TensorFiles& files,
                                               const ModelConfig& model,
                                               const std::string& name) {
  const NamesInFolder names(family, files, model);
  std::vector<int64_t> extents;
  for (const TensorPart& part : family.parts(model, name)) {
    const TensorFiles::Tensor* tensor = files.find(names.name_of(part.name));
    if (tensor == nullptr) return std::nullopt;
    std::vector<int64_t> part_extents = tensor->entry->shape;
    const auto ones = std::min<size_t>(part_extents.size(), static_cast<size_t>(part.leading_ones));
    part_extents.erase(part_extents.begin(),
                       part_extents.begin() + static_cast<std::ptrdiff_t>(ones));
    if (part.transposed && part_extents.size() == 2) std::swap(part_extents[0], part_extents[1]);
    if (!extents.empty() && !part_extents.empty()) part_extents[0] += extents[0];
    extents = part_extents;
  }
  return extents;
}

checkpoint::WeightsRead fill_weights(const Family& family,
                                     TensorFiles files,
                                     const std::string& origin,
                                     const ModelConfig& theirs,
                                     const ModelConfig& model,
                                     const std::vector<checkpoint::NamedSlice>& slices,
                                     float* flat) {
  const std::string note = files.remove_wrappers(names_in_folders(family, model, slices), origin);
  checkpoint::WeightsRead read = Filler(family, files, origin, theirs, model, flat).fill(slices);
  if (!note.empty()) read.notes.insert(read.notes.begin(), note);
  return read;
}

}  // namespace lockstep::huggingface
