#include "runtime/checkpoint/format/state.h"

#include <google/protobuf/io/tokenizer.h>
#include <google/protobuf/text_format.h>

#include <algorithm>

#include "runtime/base/checksum.h"
#include "runtime/checkpoint/format/state.pb.h"

namespace lockstep::checkpoint {
namespace {

constexpr char kSelfKey[] = "self_checksum: \"";

class FirstError : public google::protobuf::io::ErrorCollector {
 public:
  void AddError(int line, google::protobuf::io::ColumnNumber, const std::string& text) override {
    if (message.empty()) message = fmt::format("line {}: {}", line + 1, text);
  }
  void AddWarning(int, google::protobuf::io::ColumnNumber, const std::string&) override {}
  std::string message;
};

uint64_t hash_from(const std::string& hex, const std::string& origin) {
  uint64_t value = 0;
  if (!from_hex(hex, value)) {
    throw CheckpointError(
        "{}: {} is not a checksum of 16 hexadecimal digits", origin, quote_name(hex));
  }
  return value;
}

int64_t not_negative(int64_t value, const char* field, const std::string& origin) {
  if (value < 0)
    throw CheckpointError("{}: {} is {}: it must not be negative", origin, field, value);
  return value;
}

void fill(proto::CheckpointFile& message, const FileRecord& record) {
  message.set_name(record.name);
  message.set_size(record.size);
  message.set_header_checksum(to_hex(record.header_checksum));
  for (const TensorRecord& tensor : record.tensors) {
    proto::CheckpointTensor& entry = *message.add_tensor();
    entry.set_name(tensor.name);
    entry.set_elements(tensor.elements);
    entry.set_checksum(to_hex(tensor.checksum));
  }
}

FileRecord file_record(const proto::CheckpointFile& message, const std::string& origin) {
  FileRecord record;
  record.name = message.name();
  // The name is appended to a folder's path, so it must not lead out of that folder.
  if (record.name.empty() || record.name[0] == '.' || record.name.find('/') != std::string::npos) {
    throw CheckpointError("{}: {} is not a file of a checkpoint", origin, quote_name(record.name));
  }
  record.size = message.size();
  record.header_checksum = hash_from(message.header_checksum(), origin);
  for (const proto::CheckpointTensor& tensor : message.tensor()) {
    record.tensors.push_back({tensor.name(),
                              not_negative(tensor.elements(), "elements", origin),
                              hash_from(tensor.checksum(), origin)});
  }
  return record;
}

NamedSlice named_slice(const proto::CheckpointSlice& message,
                       int64_t flat_elements,
                       const std::string& origin) {
  NamedSlice slice;
  slice.name = message.name();
  slice.offset = message.offset();
  bool is_valid = message.shape_size() <= Shape::kMaxRank && slice.offset >= 0;
  int64_t elements = 1;
  for (int i = 0; is_valid && i < message.shape_size(); ++i) {
    is_valid =
        message.shape(i) >= 0 && !__builtin_mul_overflow(elements, message.shape(i), &elements);
    if (is_valid) slice.shape.append(message.shape(i));
  }
  const int order = message.channels_last_size();
  is_valid = is_valid && (order == 0 || (order >= 3 && order <= 5));
  int64_t product = 1;
  for (int i = 0; is_valid && i < order; ++i) {
    is_valid = message.channels_last(i) > 0 &&
               !__builtin_mul_overflow(product, message.channels_last(i), &product);
    if (is_valid) slice.channels_last.append(message.channels_last(i));
  }
  is_valid = is_valid && (order == 0 || product == elements);
  if (!is_valid || elements > flat_elements || slice.offset > flat_elements - elements) {
    throw CheckpointError("{}: layout: tensor {} does not fit into a flat buffer of {} elements",
                          origin,
                          quote_name(slice.name),
                          flat_elements);
  }
  return slice;
}

std::vector<collectives::Range> ranges_of(const proto::CheckpointRanges& entry,
                                          int64_t elements,
                                          const std::string& origin) {
  std::vector<collectives::Range> ranges;
  int64_t last = 0;
  for (int i = 0; i < entry.begin_size() && i < entry.end_size(); ++i) {
    const collectives::Range range = {entry.begin(i), entry.end(i)};
    if (range.begin < last || range.end < range.begin || range.end > elements)
      throw CheckpointError("{}: partial: the ranges of {} are not increasing, or not in [0, {})",
                            origin,
                            quote_name(entry.array()),
                            elements);
    last = range.end;
    ranges.push_back(range);
  }
  return ranges;
}

}  // namespace

std::string serialize(const FileRecord& record) {
  proto::CheckpointFile message;
  fill(message, record);
  return message.SerializeAsString();
}

FileRecord parse_file_record(const std::string& bytes) {
  proto::CheckpointFile message;
  if (!message.ParseFromString(bytes)) throw CheckpointError("a rank's file record is malformed");
  return file_record(message, "a rank's file record");
}

bool has_array(const CheckpointState& state, const std::string& name) {
  return std::ranges::find(state.moments, name) != state.moments.end();
}

std::string to_text(const CheckpointState& state) {
  proto::CheckpointState message;
  message.set_format(state.format);
  message.set_step(state.step);
  message.set_samples(state.samples);
  message.set_seed(state.seed);
  message.set_lanes(state.lanes);
  message.set_ranks(state.ranks);
  message.set_global_batch(state.global_batch);
  message.set_lockstep_version(state.lockstep_version);
  message.set_weights_hash(to_hex(state.weights_hash));
  message.set_config_hash(to_hex(state.config_hash));
  message.set_optimizer(state.optimizer);
  for (const std::string& moment : state.moments) message.add_moment(moment);
  for (const std::string& parameter : state.one_moment) message.add_one_moment(parameter);
  for (const auto& [array, ranges] : state.partial) {
    proto::CheckpointRanges& entry = *message.add_partial();
    entry.set_array(array);
    for (const collectives::Range& range : ranges) {
      entry.add_begin(range.begin);
      entry.add_end(range.end);
    }
  }
  message.set_flat_elements(state.flat_elements);
  if (state.frozen_elements > 0) message.set_frozen_elements(state.frozen_elements);
  if (state.best_metric) message.set_best_metric(*state.best_metric);
  message.set_best_step(state.best_step);
  message.set_evals_since_best(state.evals_since_best);
  for (const auto& [key, value] : state.extra) {
    proto::CheckpointExtra& entry = *message.add_extra();
    entry.set_key(key);
    entry.set_value(value);
  }
  for (const NamedSlice& slice : state.layout) {
    proto::CheckpointSlice& entry = *message.add_layout();
    entry.set_name(slice.name);
    for (int i = 0; i < slice.shape.rank(); ++i) entry.add_shape(slice.shape[i]);
    entry.set_offset(slice.offset);
    for (int i = 0; i < slice.channels_last.rank(); ++i)
      entry.add_channels_last(slice.channels_last[i]);
  }
  for (const FileRecord& record : state.files) fill(*message.add_file(), record);
  std::string text;
  LOCKSTEP_CHECK(google::protobuf::TextFormat::PrintToString(message, &text));
  return text + kSelfKey + to_hex(hash_text(text)) + "\"\n";
}

CheckpointState parse_state(const std::string& text, const std::string& origin) {
  const size_t last_line = text.size() < 2 ? 0 : text.rfind('\n', text.size() - 2) + 1;
  const std::string body = text.substr(0, last_line);
  if (text.substr(last_line) != kSelfKey + to_hex(hash_text(body)) + "\"\n") {
    throw CheckpointError(
        "{}: damaged or truncated: the checksum in its last line does not match its text", origin);
  }
  proto::CheckpointState message;
  FirstError error;
  google::protobuf::TextFormat::Parser parser;
  parser.RecordErrorsTo(&error);
  parser.AllowUnknownField(true);  // a newer format is rejected below, with a better message
  if (!parser.ParseFromString(body, &message)) {
    throw CheckpointError("{}: {}", origin, error.message);
  }
  if (message.format() != kCheckpointFormat) {
    throw CheckpointError(
        "{}: checkpoint format {} (written by Lockstep {}); this program reads {}",
        origin,
        message.format(),
        quote_name(message.lockstep_version()),
        kCheckpointFormat);
  }
  CheckpointState state;
  state.step = not_negative(message.step(), "step", origin);
  state.samples = not_negative(message.samples(), "samples", origin);
  state.seed = message.seed();
  state.lanes = not_negative(message.lanes(), "lanes", origin);
  state.ranks = not_negative(message.ranks(), "ranks", origin);
  if (state.ranks > kMaxCheckpointRanks) {
    throw CheckpointError(
        "{}: ranks is {}: at most {} are allowed", origin, state.ranks, kMaxCheckpointRanks);
  }
  state.global_batch = not_negative(message.global_batch(), "global_batch", origin);
  state.lockstep_version = message.lockstep_version();
  state.weights_hash = hash_from(message.weights_hash(), origin);
  state.config_hash = hash_from(message.config_hash(), origin);
  state.optimizer = message.optimizer();
  state.moments.assign(message.moment().begin(), message.moment().end());
  state.one_moment.assign(message.one_moment().begin(), message.one_moment().end());
  state.flat_elements = not_negative(message.flat_elements(), "flat_elements", origin);
  for (const proto::CheckpointRanges& entry : message.partial())
    state.partial[entry.array()] = ranges_of(entry, state.flat_elements, origin);
  state.frozen_elements = not_negative(message.frozen_elements(), "frozen_elements", origin);
  if (state.frozen_elements > state.flat_elements)
    throw CheckpointError("{}: frozen_elements is {} of {} elements",
                          origin,
                          state.frozen_elements,
                          state.flat_elements);
  if (message.has_best_metric()) state.best_metric = message.best_metric();
  state.best_step = message.best_step();
  state.evals_since_best = not_negative(message.evals_since_best(), "evals_since_best", origin);
  for (const proto::CheckpointExtra& entry : message.extra())
    state.extra[entry.key()] = entry.value();
  for (const proto::CheckpointSlice& slice : message.layout()) {
    state.layout.push_back(named_slice(slice, state.flat_elements, origin));
  }
  for (const proto::CheckpointFile& file : message.file()) {
    state.files.push_back(file_record(file, origin));
  }
  return state;
}

}  // namespace lockstep::checkpoint
