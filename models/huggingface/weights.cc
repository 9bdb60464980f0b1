#include "models/huggingface/weights.h"

#include <algorithm>
#include <cstring>
#include <set>

#include "runtime/base/error.h"
#include "runtime/base/transpose.h"
#include "runtime/checkpoint/file_form.h"
#include "runtime/checkpoint/match.h"

namespace lockstep::huggingface {
namespace {

// How the folder's names differ from those of a whole model.
class NamesInFolder {
 public:
  NamesInFolder(const Family& family, const TensorFiles& files, const ModelConfig& model)
      : family_(family), files_(files), prefix_(family.base_prefix(model)) {
    const auto below_head = [&](const auto& tensor) { return tensor.first.starts_with(prefix_); };
    has_prefix_ = std::any_of(files.tensors().begin(), files.tensors().end(), below_head);
  }

  std::string name_of(const std::string& name) const {
    const std::string here = with_or_without_prefix(name);
    if (files_.find(here) != nullptr) return here;
    const std::string older = family_.older_name(here);
    return !older.empty() && files_.find(older) != nullptr ? older : here;
  }
  // Whether the folder's tensor lies beside the body: it is of a head.
  bool is_beside_body(const std::string& name) const {
    return has_prefix_ && !name.starts_with(prefix_);
  }
  // Of a name without or with the prefix the one without it.
  std::string below_prefix(const std::string& name) const {
    return name.starts_with(prefix_) ? name.substr(prefix_.size()) : name;
  }
  const std::string& prefix() const { return prefix_; }

 private:
  // Folders of a body alone lack the prefix, and so do names of a model without a head.
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

// 0 where the model says none.
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

  // All tensors are looked at before the first is read.
  WeightsRead fill(const std::vector<NamedSlice>& slices) {
    std::vector<Match> matches;
    for (const NamedSlice& slice : slices) matches.push_back(compare(slice));
    check_names(slices);
    std::vector<const NamedSlice*> found;
    for (const Match& match : matches) {
      if (check(match)) found.push_back(match.slice);
    }
    check_rest();
    if (!mismatches_.empty())
      throw CheckpointError("{}: {} of its tensors and the model's do not match: {}",
                            origin_,
                            mismatches_.size(),
                            mismatches_.front());
    for (const NamedSlice* slice : found) {
      for (const TensorPlace& place : places_of(family_, model_, *slice))
        read_place(
            *files_.find(names_.name_of(place.part.name)), *slice, place, flat_ + slice->offset);
    }
    return read_;
  }

 private:
  // What the folder has of a tensor of the model.
  struct Match {
    const NamedSlice* slice;
    bool is_whole = true;  // none of its parts is missing
    std::vector<std::string> mismatches;
  };

  Match compare(const NamedSlice& slice) {
    ShapeByName expected, there;
    const std::vector<TensorPart> stored = family_.parts(theirs_, slice.name);
    size_t number = 0;
    for (TensorPlace place : places_of(family_, model_, slice)) {
      const std::string name = names_.name_of(place.part.name);
      const int64_t rows = stored[number++].stored_rows;
      if (rows > place.rows) place.extents[0] = rows;
      expected[name] = place.extents;
      const TensorFiles::Tensor* tensor = files_.find(name);
      if (tensor == nullptr) continue;
      seen_.insert(name);
      there[name] = tensor->entry->shape;
    }
    if (!there.empty() && family_.is_head(slice.name)) heads_there_.insert(head_of(slice.name));
    return {&slice, there.size() == expected.size(), list_mismatches(there, expected)};
  }

  // Whether the folder has the tensor as the model needs it.
  bool check(const Match& match) {
    if (match.mismatches.empty()) return true;
    if (is_new(match)) {
      read_.new_head = true;
      read_.notes.push_back(fmt::format("{}: {} is new, with initial weights: {}",
                                        origin_,
                                        match.slice->name,
                                        match.mismatches.front()));
    } else {
      mismatches_.insert(mismatches_.end(), match.mismatches.begin(), match.mismatches.end());
    }
    return false;
  }

  // A head that the folder has nothing of, or the layer of the classes where the folder has another
  // number of them; else what does not fit is broken.
  bool is_new(const Match& match) const {
    const std::string& name = match.slice->name;
    if (!family_.is_head(name)) return false;
    if (!heads_there_.contains(head_of(name))) return true;
    return match.is_whole && family_.is_of_classes(name) &&
           classes_of(theirs_) != classes_of(model_);
  }

  // "cls" of "cls.predictions.bias", "pooler" of "bert.pooler.dense.bias".
  std::string head_of(const std::string& name) const {
    const std::string below = names_.below_prefix(name);
    return below.substr(0, below.find('.'));
  }

  // Refuses a folder that has none of the body's tensors by the names that they may have.
  void check_names(const std::vector<NamedSlice>& slices) const {
    const auto of_body = [&](const NamedSlice& slice) { return !family_.is_head(slice.name); };
    const auto body = std::find_if(slices.begin(), slices.end(), of_body);
    if (!seen_.empty() || body == slices.end()) return;
    std::vector<std::string> there;
    for (const auto& [name, tensor] : files_.tensors()) there.push_back(name);
    const std::string name = names_.below_prefix(family_.parts(model_, body->name).front().name);
    throw CheckpointError(
        "{}: has tensors {}; allowed: the model's, such as '{}{}', or '{}' in a folder of the body "
        "alone",
        origin_,
        there.empty() ? "none" : name_list(there),
        names_.prefix(),
        name,
        name);
  }

  // What the model has not asked for.
  void check_rest() {
    std::vector<std::string> left_out;
    for (const auto& [name, tensor] : files_.tensors()) {
      if (seen_.count(name) > 0 || family_.is_no_weight(name)) continue;
      const std::string tied = family_.tied_name(model_, name);
      if (!tied.empty()) {
        check_tied(name, tensor, names_.name_of(tied));
      } else if (names_.is_beside_body(name)) {
        left_out.push_back(name);  // of another head
      } else {
        mismatches_.push_back(fmt::format("the model has no tensor '{}'", name));
      }
    }
    if (!left_out.empty())
      read_.notes.push_back(fmt::format("{}: left out: {}", origin_, name_list(left_out)));
  }

  void check_tied(const std::string& name,
                  const TensorFiles::Tensor& tensor,
                  const std::string& to_name) {
    const TensorFiles::Tensor* to = files_.find(to_name);
    if (to == nullptr) return;  // which is a mismatch already
    if (tensor.entry->shape == to->entry->shape && values(tensor) == values(*to)) return;
    if (family_.tied_name(theirs_, name).empty())
      mismatches_.push_back(fmt::format(
          "'{}' differs from '{}', as config.json says, but model.{}.tied_head is true; allowed: false",
          name,
          to_name,
          name_of(model_)));
    else
      mismatches_.push_back(fmt::format(
          "config.json says that '{}' is tied to '{}', but they differ", name, to_name));
  }

  const Family& family_;
  const TensorFiles& files_;
  const std::string origin_;
  const NamesInFolder names_;
  const ModelConfig &theirs_, &model_;
  float* const flat_;
  std::set<std::string> seen_;         // names in the folder
  std::set<std::string> heads_there_;  // of which it has something
  std::vector<std::string> mismatches_;
  WeightsRead read_;
};

}  // namespace

void read_place(const TensorFiles::Tensor& tensor,
                const NamedSlice& slice,
                const TensorPlace& place,
                float* parameter) {
  float* const out = parameter + place.first * place.columns;
  const int64_t elements = place.rows * place.columns;
  if (place.reordered) {
    from_file_order(slice, values(tensor).data(), parameter);
  } else if (place.part.transposed) {
    transpose(values(tensor).data(), place.rows, place.columns, out);
  } else if (tensor.entry->elements == elements) {
    read(tensor, out);
  } else {
    std::memcpy(out, values(tensor).data(), static_cast<size_t>(elements) * sizeof(float));
  }
}

std::vector<TensorPlace> places_of(const Family& family,
                                   const ModelConfig& model,
                                   const NamedSlice& slice) {
  const Shape& shape = slice.shape;
  std::vector<TensorPlace> places;
  int64_t row = 0;
  for (const TensorPart& part : family.parts(model, slice.name)) {
    TensorPlace place{.part = part, .extents = {}};
    place.first = row;
    place.rows = part.rows > 0 ? part.rows : shape[0] / part.equal_parts;
    place.columns = shape.elements() / shape[0];
    place.extents = file_extents(slice);
    place.extents[0] = place.rows;
    if (part.transposed) std::swap(place.extents[0], place.extents[1]);
    place.extents.insert(place.extents.begin(), static_cast<size_t>(part.leading_ones), 1);
    place.reordered = is_reordered(slice);
    row += place.rows;
    places.push_back(place);
  }
  LOCKSTEP_CHECK(row == shape[0], "{}: its parts have {} rows of {}", slice.name, row, shape[0]);
  return places;
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
    std::vector<int64_t> own = tensor->entry->shape;
    const auto ones = std::min<size_t>(own.size(), static_cast<size_t>(part.leading_ones));
    own.erase(own.begin(), own.begin() + static_cast<std::ptrdiff_t>(ones));
    if (part.transposed && own.size() == 2) std::swap(own[0], own[1]);
    if (!extents.empty() && !own.empty()) own[0] += extents[0];
    extents = own;
  }
  return extents;
}

WeightsRead fill_weights(const Family& family,
                         const TensorFiles& files,
                         const std::string& origin,
                         const ModelConfig& theirs,
                         const ModelConfig& model,
                         const std::vector<NamedSlice>& slices,
                         float* flat) {
  return Filler(family, files, origin, theirs, model, flat).fill(slices);
}

}  // namespace lockstep::huggingface
