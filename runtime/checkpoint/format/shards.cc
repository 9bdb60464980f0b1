#include "runtime/checkpoint/format/shards.h"

#include <algorithm>
#include <map>
#include <set>

#include "runtime/base/error.h"
#include "runtime/base/text.h"

namespace lockstep::checkpoint {
namespace {

void check_model(const CheckpointState& state,
                 const FileRecord& model,
                 std::vector<std::string>& problems) {
  std::map<std::string, int64_t> expected;
  for (const NamedSlice& slice : state.layout) expected[slice.name] = slice.shape.elements();
  for (const TensorRecord& tensor : model.tensors) {
    const auto found = expected.find(tensor.name);
    if (found == expected.end() || found->second != tensor.elements) {
      problems.push_back(fmt::format("{}: tensor {} ({} elements) is not in the layout of {}",
                                     kModelFile,
                                     quote_name(tensor.name),
                                     tensor.elements,
                                     kStateFile));
    }
    if (found != expected.end()) expected.erase(found);
  }
  for (const auto& [name, elements] : expected) {
    problems.push_back(fmt::format(
        "{}: tensor {} ({} elements) is missing", kModelFile, quote_name(name), elements));
  }
}

void check_coverage(const CheckpointState& state,
                    const std::string& moment,
                    std::vector<std::string>& problems) {
  const std::vector<collectives::Range> holes = absent_ranges(state, moment);
  auto hole = holes.begin();
  int64_t position = 0;
  const auto pass_holes = [&] {
    for (; hole != holes.end() && hole->begin <= position; ++hole)
      position = std::max(position, hole->end);
  };
  for (const MomentPiece& piece : moment_pieces(state, moment)) {
    pass_holes();
    if (piece.begin != position) {
      problems.push_back(fmt::format("{}: moment {}: flat elements [{}, {}) are {}",
                                     state.files[piece.file].name,
                                     quote_name(moment),
                                     std::min(piece.begin, position),
                                     std::max(piece.begin, position),
                                     piece.begin < position ? "stored twice" : "in no shard"));
    }
    if (piece.elements > state.trained_elements() ||
        piece.begin > state.trained_elements() - piece.elements) {
      problems.push_back(
          fmt::format("{}: moment {}: a piece of {} elements at {} ends beyond the {} "
                      "of the flat buffer",
                      state.files[piece.file].name,
                      quote_name(moment),
                      piece.elements,
                      piece.begin,
                      state.trained_elements()));
      return;
    }
    position = std::max(position, piece.begin + piece.elements);
  }
  pass_holes();
  if (position != state.trained_elements()) {
    problems.push_back(fmt::format("moment {}: flat elements [{}, {}) are in no shard",
                                   quote_name(moment),
                                   position,
                                   state.trained_elements()));
  }
}

}  // namespace

std::string optimizer_file_name(int64_t rank, int64_t ranks) {
  return fmt::format("optimizer-{:05d}-of-{:05d}.safetensors", rank, ranks);
}

std::vector<MomentPiece> moment_pieces(const CheckpointState& state, const std::string& moment) {
  std::vector<MomentPiece> pieces;
  const std::string prefix = moment + '.';
  for (size_t file = 0; file < state.files.size(); ++file) {
    const FileRecord& record = state.files[file];
    if (record.name == kModelFile) continue;
    for (size_t i = 0; i < record.tensors.size(); ++i) {
      const TensorRecord& tensor = record.tensors[i];
      if (!tensor.name.starts_with(prefix)) continue;
      MomentPiece piece{0, tensor.elements, file, i};
      piece.begin = parse_as<int64_t>(tensor.name.substr(prefix.size())).value_or(-1);
      if (piece.begin < 0) {
        throw CheckpointError("{}: tensor {} is not named {}.<first element>",
                              record.name,
                              quote_name(tensor.name),
                              moment);
      }
      pieces.push_back(piece);
    }
  }
  std::ranges::sort(pieces, {}, &MomentPiece::begin);
  return pieces;
}

std::vector<collectives::Range> absent_ranges(const CheckpointState& state,
                                              const std::string& moment) {
  if (const auto partial = state.partial.find(moment); partial != state.partial.end()) {
    std::vector<collectives::Range> ranges;
    int64_t begin = 0;
    for (const collectives::Range& range : partial->second) {
      if (begin < range.begin) ranges.push_back({begin, range.begin});
      begin = range.end;
    }
    if (begin < state.trained_elements()) ranges.push_back({begin, state.trained_elements()});
    return ranges;
  }
  if (!is_moment(moment) || state.moments.empty() || moment == state.moments.front()) return {};
  const std::set<std::string> names(state.one_moment.begin(), state.one_moment.end());
  std::set<int64_t> begins = {state.flat_elements};
  for (const NamedSlice& slice : state.layout) begins.insert(slice.offset);
  std::vector<collectives::Range> ranges;
  for (const NamedSlice& slice : state.layout) {
    const auto next = begins.upper_bound(slice.offset);
    if (names.contains(slice.name) && next != begins.end()) ranges.push_back({slice.offset, *next});
  }
  std::ranges::sort(ranges, {}, &collectives::Range::begin);
  return ranges;
}

std::vector<std::string> find_inconsistencies(const CheckpointState& state) {
  std::vector<std::string> problems;
  std::set<std::string> expected{kModelFile};
  if (!state.moments.empty()) {
    for (int64_t rank = 0; rank < state.ranks; ++rank) {
      expected.insert(optimizer_file_name(rank, state.ranks));
    }
  }
  for (const FileRecord& record : state.files) {
    if (expected.erase(record.name) == 0) {
      problems.push_back(fmt::format("{}: {} is listed twice or does not belong to {} rank(s)",
                                     kStateFile,
                                     quote_name(record.name),
                                     state.ranks));
    }
    if (record.name == kModelFile) check_model(state, record, problems);
  }
  for (const std::string& name : expected) {
    problems.push_back(fmt::format("{}: the file {} is not listed", kStateFile, name));
  }
  try {
    for (const std::string& moment : state.moments) check_coverage(state, moment, problems);
  } catch (const Error& error) {
    problems.push_back(error.what());
  }
  return problems;
}

}  // namespace lockstep::checkpoint
