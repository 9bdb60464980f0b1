#include "launcher/doctor/finding.h"

#include <fmt/core.h>

#include <algorithm>

#include "runtime/base/text.h"

namespace lockstep::doctor {
namespace {

std::string area_of(const Finding& finding) {
  return finding.name.substr(0, finding.name.find('.'));
}

std::string prefix_of(const Finding& finding, size_t hosts) {
  constexpr size_t kNamed = 3;
  if (finding.hosts.empty() || hosts < 2) return "";
  return named_first(finding.hosts.size(), kNamed, [&](size_t i) { return finding.hosts[i]; }) +
         ": ";
}

std::string line_of(const Finding& finding, size_t hosts) {
  return fmt::format("{:8} {:8} {}{}. {}. {}.",
                     name_of(finding.level),
                     area_of(finding),
                     prefix_of(finding, hosts),
                     finding.text,
                     finding.cost,
                     finding.remedy);
}

// The ok findings of an area: those of its first host, and of the whole run.
std::string ok_line(const std::vector<Finding>& all, const std::string& area, size_t hosts) {
  std::string text, shown;
  bool others = false;
  for (const Finding& finding : all) {
    if (finding.level != Level::kOk || area_of(finding) != area) continue;
    if (!finding.hosts.empty() && shown.empty()) shown = finding.hosts.front();
    const bool here = finding.hosts.empty() || finding.hosts.front() == shown;
    others |= !here;
    if (here) append_item(text, finding.text, "; ");
  }
  if (others && hosts > 1) text = fmt::format("{}: {}; other hosts: ok", shown, text);
  return text.empty() ? "" : fmt::format("{:8} {:8} {}", name_of(Level::kOk), area, text);
}

}  // namespace

const char* name_of(Level level) {
  switch (level) {
    case Level::kOk: return "ok";
    case Level::kWarning: return "warning";
    case Level::kError: break;
  }
  return "error";
}

void Findings::ok(const std::string& host, const std::string& name, const std::string& text) {
  add(Level::kOk, host, name, text, "", "");
}

void Findings::add(Level level,
                   const std::string& host,
                   const std::string& name,
                   const std::string& text,
                   const std::string& cost,
                   const std::string& remedy) {
  const auto same = std::ranges::find_if(found_, [&](const Finding& finding) {
    return finding.level == level && finding.name == name && finding.text == text &&
           finding.hosts.empty() == host.empty();
  });
  if (same == found_.end()) {
    found_.push_back({level, name, text, cost, remedy, {}});
    if (!host.empty()) found_.back().hosts.push_back(host);
  } else if (std::ranges::find(same->hosts, host) == same->hosts.end() && !host.empty()) {
    same->hosts.push_back(host);
  }
}

int Findings::count(Level level) const {
  return static_cast<int>(std::ranges::count(found_, level, &Finding::level));
}

std::vector<std::string> lines_of(const Findings& findings, size_t hosts) {
  std::vector<std::string> lines, areas;
  for (const Finding& finding : findings.all())
    if (std::ranges::find(areas, area_of(finding)) == areas.end())
      areas.push_back(area_of(finding));
  for (const std::string& area : areas) {
    const std::string ok = ok_line(findings.all(), area, hosts);
    if (!ok.empty()) lines.push_back(ok);
    for (const Finding& finding : findings.all())
      if (finding.level != Level::kOk && area_of(finding) == area)
        lines.push_back(line_of(finding, hosts));
  }
  return lines;
}

Json to_json(const Findings& findings) {
  Json list = Json::array();
  for (const Finding& finding : findings.all()) {
    Json json = Json::object(
        {{"level", name_of(finding.level)}, {"name", finding.name}, {"text", finding.text}});
    if (finding.level != Level::kOk) {
      json["cost"] = finding.cost;
      json["remedy"] = finding.remedy;
    }
    if (!finding.hosts.empty()) json["hosts"] = finding.hosts;
    list.push_back(std::move(json));
  }
  return list;
}

}  // namespace lockstep::doctor
