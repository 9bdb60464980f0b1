#include "launcher/report/timeline_summary.h"

#include <algorithm>
#include <vector>

#include "runtime/base/file.h"
#include "runtime/base/json.h"

namespace lockstep::report {
namespace {

struct Span {
  double start = 0, end = 0;
  bool contains(const Span& other) const { return start <= other.start && other.end <= end; }
};

// The total length of spans in order of their start, overlaps counted once.
class Union {
 public:
  void add(const Span& span) {
    const double from = std::max(span.start, end_);
    if (span.end <= from) return;
    length_ += span.end - from;
    end_ = span.end;
  }
  double length() const { return length_; }

 private:
  double length_ = 0, end_ = -1e300;
};

struct RankSpans {
  Span pass;  // the newest forward and backward pass
  Union transfers;
};

class Summary {
 public:
  void add(const Json& event) {
    RankTimeline& rank = ranks_[event.at("pid").get<int64_t>()];
    const auto name = event.at("name").get<std::string>();
    if (event.at("ph").get<std::string>() == "M") {
      if (name == "process_name") rank.name = event.at("args").at("name").get<std::string>();
      return;
    }
    const auto rank_number = event.at("pid").get<int64_t>();
    RankSpans& spans = spans_[rank_number];
    Span span{event.at("ts").get<double>() / 1e3, 0};
    const double ms = event.at("dur").get<double>() / 1e3;
    span.end = span.start + ms;
    const auto category = event.at("cat").get<std::string>();
    if (name.starts_with("step ")) {
      ++rank.steps;
      rank.step_ms += ms;
    } else if (name == "forward and backward") {
      rank.passes_ms += ms;
      spans.pass = span;
    } else if (category == "wait") {
      rank.waits_ms += ms;
      if (spans.pass.contains(span)) rank.pass_waits_ms += ms;
    } else if (category == "exchange" || category == "gather") {
      spans.transfers.add(span);
      rank.transfer_ms = spans.transfers.length();
    }
    const Json* arguments = event.find("args");
    if (arguments == nullptr || arguments->value("last", int64_t{-1}) != rank_number) return;
    ++rank.last;
    rank.behind_ms += arguments->value("behind_ms", 0.0);
  }
  TimelineSummary ranks() && { return std::move(ranks_); }

 private:
  TimelineSummary ranks_;
  std::map<int64_t, RankSpans> spans_;
};

}  // namespace

TimelineSummary summarize_timeline(std::string_view text) {
  Summary summary;
  while (!text.empty()) {
    const size_t end = std::min(text.find('\n'), text.size());
    std::string_view line = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    if (line.ends_with(',')) line.remove_suffix(1);
    // Ops are most of the lines, and the passes have their time.
    if (!line.starts_with('{') || line.find(R"("cat":"op")") != std::string_view::npos) continue;
    try {
      summary.add(Json::parse(line));
    } catch (const JsonError&) {
      continue;
    }
  }
  return std::move(summary).ranks();
}

TimelineSummary read_timeline_summary(const std::filesystem::path& path) {
  if (!is_file(path)) return {};
  const MappedFile file(path);
  return summarize_timeline(
      {reinterpret_cast<const char*>(file.bytes().data()), file.bytes().size()});
}

}  // namespace lockstep::report
