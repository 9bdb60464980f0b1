#include "launcher/published/published_rows.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>

#include "launcher/published/known_networks.h"
#include "runtime/base/error.h"
#include "runtime/base/text.h"

namespace lockstep::published {
namespace {

// Columns without which nothing can be said.
constexpr std::string_view kNeeded[] = {"id", "model", "value", "unit", "device_key", "devices"};

// The numbers of the rows to which constants were fitted. They were drawn before the first fit: in
// each source and kind of network, rows stand in the order of the SHA-256 of their ids, and every
// third one is drawn. rows.tsv has the same in its column `use`.
constexpr int kFitted[] = {
    9,   13,  18,  27,  32,  54,  62,  65,  67,  72,  73,  90,  95,  98,  104, 105, 107,
    111, 123, 125, 128, 129, 131, 149, 150, 152, 153, 155, 156, 179, 182, 189, 192, 195,
    197, 215, 220, 224, 227, 228, 238, 241, 245, 248, 249, 251, 253, 255, 260, 279, 283,
    286, 287, 288, 297, 301, 306, 309, 313, 315, 319, 320, 330, 333, 336, 338, 340, 355,
    356, 368, 371, 393, 395, 396, 402, 412, 414, 415, 416, 418, 434, 435, 437, 438, 455,
    457, 460, 471, 472, 474, 483, 484, 486, 487, 494, 500, 504, 509, 511, 520, 521, 523,
    536, 552, 556, 559, 568, 570, 608, 611, 633, 634, 635, 636, 639, 640, 647, 651, 665,
    666, 669, 674, 681, 686, 690, 692, 701, 711, 725, 728, 732, 740, 742, 745, 757, 759};

}  // namespace

const std::string& PublishedRow::text(std::string_view column) const {
  static const std::string kNone;
  const auto at = columns_.find(column);
  return at == columns_.end() ? kNone : at->second;
}

double PublishedRow::number(std::string_view column, double otherwise) const {
  const std::string& text = this->text(column);
  double value = 0;
  const auto [end, code] = std::from_chars(text.data(), text.data() + text.size(), value);
  return code == std::errc() && end != text.data() ? value : otherwise;
}

bool PublishedRow::has(std::string_view column, std::string_view part) const {
  return text(column).find(part) != std::string::npos;
}

std::string PublishedRow::source() const {
  std::string_view source = text("source");
  for (const std::string_view prefix : {"github:", "https://github.com/", "https://"})
    if (source.starts_with(prefix)) {
      source.remove_prefix(prefix.size());
      break;
    }
  const size_t at = source.find('@');
  if (at == std::string_view::npos) return std::string(source.substr(0, source.find('/')));
  const std::string_view repository = source.substr(0, at);
  // This one has a page for each network.
  constexpr std::string_view kExamples = "DeepLearningExamples";
  const size_t path = source.find_first_of(":/", at), name = source.rfind('/');
  if (!repository.ends_with(kExamples) || path == std::string_view::npos || name <= path)
    return std::string(repository);
  return fmt::format("{}/{}", kExamples, source.substr(path + 1, name - path - 1));
}

double PublishedRow::nodes() const {
  constexpr double kDevicesOfNode = 8;
  const double nodes = number("nodes");
  return nodes > 0 ? nodes : std::max(1.0, std::floor(devices() / kDevicesOfNode));
}

std::vector<PublishedRow> read_rows(const std::string& text, const std::string& origin) {
  const auto cells_of = [](std::string_view line) {
    std::vector<std::string> cells;
    for (size_t begin = 0; begin <= line.size();) {
      const size_t end = std::min(line.find('\t', begin), line.size());
      cells.emplace_back(line.substr(begin, end - begin));
      begin = end + 1;
    }
    return cells;
  };
  Lines lines(text);
  std::string_view line;
  if (!lines.next(&line)) throw ConfigError("{}: has no line of column names", origin);
  const std::vector<std::string> names = cells_of(line);
  for (const std::string_view needed : kNeeded)
    if (std::ranges::find(names, needed) == names.end())
      throw ConfigError("{}: column '{}' is missing", origin, needed);
  std::vector<PublishedRow> rows;
  while (lines.next(&line)) {
    if (trimmed(line).empty()) continue;
    std::vector<std::string> cells = cells_of(line);
    if (cells.size() > names.size())
      throw ConfigError("{}: line {} has {}; the first line names {}",
                        origin,
                        lines.number(),
                        counted(cells.size(), "column"),
                        names.size());
    std::map<std::string, std::string, std::less<>> columns;
    for (size_t i = 0; i < cells.size(); ++i) columns[names[i]] = std::move(cells[i]);
    rows.emplace_back(std::move(columns));
    if (rows.back().number("value") <= 0)
      throw ConfigError("{}: line {}: value is {}; allowed: a positive number",
                        origin,
                        lines.number(),
                        in_quotes(rows.back().text("value")));
  }
  return rows;
}

bool fitted(std::string_view id) {
  if (id.size() < 2 || id.front() != 'T') return false;
  const auto number = parse_as<int>(id.substr(1));
  return number && std::ranges::find(kFitted, *number) != std::end(kFitted);
}

std::string unscored_because(const PublishedRow& row) {
  if (const std::string& reason = row.text("unscored"); !reason.empty()) return reason;
  if (row.has("precision", "FP8") || row.has("precision", "fp8") || row.has("precision", "FP4"))
    return "products in FP8 or FP4";
  if (row.has("strategy", "offload")) return "the optimizer is on the CPU";
  if (row.text("confidence") == "low") return "the table itself doubts it";
  if (row.text("kind") == "gnn") return "the work of a graph is not a function of stated sizes";
  if (row.has("model", "ESM-2")) return "the sequence length is not stated";
  if (row.has("model", "Mask R-CNN")) return "bound by its host: it scales above linear";
  if (row.has("framework", "Paddle") && row.text("seq_or_image") == "512")
    return "more than 0.8 of the peak if padding counts";
  if (row.text("device_key") == "B200" && row.has("model", "ResNet")) return "starved by its input";
  if (row.text("basis") == "stated" && row.text("unit") == "min")
    return "precision, steps or batch are not stated";
  constexpr double kShortMinutes = 5;
  if (row.text("basis").starts_with("derived (samples") &&
      row.number("time_to_train_min", 9) < kShortMinutes)
    return "derived from less than 5 minutes, with evaluation and start";
  return "";
}

std::string doubt_of(const PublishedRow& row) {
  if (row.has("framework", "HF Trainer") || row.has("framework", "HuggingFace"))
    return "not a tuned trainer";
  if (row.has("source", "lambdal")) return "boxes with one GPU differ by a fifth and more";
  if (row.has("framework", "TensorFlow2") && row.nodes() > 1)
    return "the cluster reaches 0.75 of linear although gradients are accumulated";
  if (row.has("model", "SQuAD")) return "host work of each step that the row does not state";
  if (row.has("model", "efficientnet"))
    return "its input pipeline: eight devices scale by 6 to 7.6";
  if (row.text("basis").starts_with("derived"))
    return "time to train includes evaluation and start";
  if (row.has("model", "nnU-Net")) return "the size of the patches is not stated";
  if (row.has("model", "U-Net medical") && row.number("batch_per_device") == 1)
    return "steps of 27 ms, in which the host counts";
  if (row.has("model", "Stable Diffusion")) return "the host takes some 75 ms of each micro-batch";
  if (row.has("model", "Transformer-XL") && row.number("batch_per_device") <= 16)
    return "small batches: exchange that this code does not hide";
  if (row.has("device_key", "Xeon")) return "only two sources train on CPUs";
  if (row.has("framework", "tf_cnn_benchmarks") && row.devices() > 1)
    return "its gradients are summed on one device or on the host, probably";
  if (row.has("framework", "Pax"))
    return "XLA of 2023 sends each gradient on its own: nothing above 50 KB is combined";
  if (row.text("recompute") == "full" && row.number("batch_per_device") <= 4)
    return "memory is nearly full: the allocator may retry";
  return "";
}

std::string doubt_of(const PublishedRow& few, const PublishedRow& many) {
  std::string doubt = doubt_of(few);
  if (doubt.empty()) doubt = doubt_of(many);
  if (!doubt.empty()) return doubt;
  const bool accumulates = few.number("grad_accum") > many.number("grad_accum");
  if (few.text("kind") == "gpt" && accumulates)
    return "the fewer devices hold smaller micro-batches, and accumulate them";
  if (few.text("kind") == "bert" && few.text("seq_or_image").starts_with("512"))
    return "no padding: ranks wait for the one with most tokens, in TF32 twice as long as in FP16";
  return "";
}

}  // namespace lockstep::published
