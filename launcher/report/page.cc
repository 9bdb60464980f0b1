#include "launcher/report/page.h"

#include <fmt/core.h>

#include "launcher/plots/svg.h"

namespace lockstep::report {
namespace {

using plots::escaped;

constexpr const char* kPageStyle =
    ":root{color-scheme:light dark}"
    "body{margin:0 auto;padding:20px;max-width:1180px;background:#fff;color:#222;"
    "font:14px/1.45 DejaVu Sans,Helvetica,Arial,sans-serif}"
    "h1{font-size:22px;margin:0}h2{font-size:16px;margin:28px 0 8px;padding-top:8px;"
    "border-top:1px solid #ddd}p{margin:6px 0;max-width:100ch}.note{color:#555;font-size:12px}"
    ".tiles{display:flex;flex-wrap:wrap;gap:10px;margin:14px 0}"
    ".tile{border:1px solid #ddd;border-radius:6px;padding:6px 12px;overflow-wrap:anywhere}"
    ".tile b{display:block;font-size:17px;font-weight:600}.tile span{color:#555;font-size:12px}"
    ".plots{display:grid;grid-template-columns:repeat(auto-fill,minmax(min(520px,100%),1fr));"
    "gap:14px}.plots svg{width:100%;height:auto;display:block}img{max-width:100%;height:auto}"
    ".wide{overflow-x:auto}table{border-collapse:collapse;margin:8px 0;font-size:13px}"
    "th,td{padding:3px 10px;border-bottom:1px solid #ddd;text-align:right;vertical-align:top}"
    "th{font-weight:600}.l{text-align:left;overflow-wrap:break-word}td:first-child{white-space:nowrap}"
    "pre{background:#f4f4f4;padding:10px;overflow-x:auto;font-size:12px}"
    "summary{cursor:pointer;margin:8px 0}"
    "@media(prefers-color-scheme:dark){body{background:#16191d;color:#e6e6e6}"
    "h2,.tile,th,td{border-color:#3a4047}.note,.tile span{color:#a8adb3}pre{background:#20242a}}";

// Base64 of RFC 4648.
std::string base64(std::string_view bytes) {
  constexpr std::string_view kDigits =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string text;
  for (size_t i = 0; i < bytes.size(); i += 3) {
    uint32_t three = 0;
    for (size_t k = 0; k < 3; ++k)
      three = three << 8 | (i + k < bytes.size() ? static_cast<unsigned char>(bytes[i + k]) : 0U);
    for (size_t k = 0; k < 4; ++k)
      text += i + k <= bytes.size() ? kDigits[three >> (18 - 6 * k) & 63] : '=';
  }
  return text;
}

}  // namespace

Page::Page(const std::string& title, const std::string& subtitle) : title_(title) {
  body_ = fmt::format("<h1>{}</h1>\n<p>{}</p>\n", escaped(title), escaped(subtitle));
}

void Page::end_pictures() {
  if (in_pictures_) body_ += "</div>\n";
  in_pictures_ = false;
}

void Page::section(std::string_view title) {
  end_pictures();
  body_ += fmt::format("<h2>{}</h2>\n", escaped(title));
}

void Page::paragraph(std::string_view text) {
  end_pictures();
  body_ += fmt::format("<p>{}</p>\n", escaped(text));
}

void Page::note(std::string_view text) {
  end_pictures();
  body_ += fmt::format("<p class=\"note\">{}</p>\n", escaped(text));
}

void Page::tiles(const std::vector<Tile>& tiles) {
  end_pictures();
  body_ += "<div class=\"tiles\">\n";
  for (const Tile& tile : tiles)
    body_ += fmt::format("<div class=\"tile\"><span>{}</span><b>{}</b></div>\n",
                         escaped(tile.name),
                         escaped(tile.value));
  body_ += "</div>\n";
}

void Page::table(const Row& header, const std::vector<Row>& rows, size_t left) {
  end_pictures();
  if (rows.empty()) return;
  const auto line = [&](const Row& row, const char* tag) {
    body_ += "<tr>";
    for (size_t i = 0; i < row.size(); ++i)
      body_ +=
          fmt::format("<{0}{1}>{2}</{0}>", tag, i < left ? " class=\"l\"" : "", escaped(row[i]));
    body_ += "</tr>\n";
  };
  body_ += "<div class=\"wide\"><table>\n";
  if (!header.empty()) line(header, "th");
  for (const Row& row : rows) line(row, "td");
  body_ += "</table></div>\n";
}

void Page::picture(const plots::Picture& picture) {
  if (!in_pictures_) body_ += "<div class=\"plots\">\n";
  in_pictures_ = true;
  body_ += "<div>" + plots::svg_of(picture, /*in_page=*/true) + "</div>\n";
}

void Page::image(const std::string& svg, std::string_view description) {
  end_pictures();
  body_ += fmt::format("<div><img alt=\"{}\" src=\"data:image/svg+xml;base64,{}\"/></div>\n",
                       escaped(description),
                       base64(svg));
}

void Page::details(std::string_view summary, std::string_view text) {
  end_pictures();
  body_ += fmt::format(
      "<details><summary>{}</summary><pre>{}</pre></details>\n", escaped(summary), escaped(text));
}

std::string Page::html() const {
  return fmt::format(
      "<!DOCTYPE html>\n"
      "<html xmlns=\"http://www.w3.org/1999/xhtml\" lang=\"en\"><head><meta charset=\"utf-8\"/>"
      "<meta name=\"viewport\" content=\"width=device-width\"/>"
      "<title>{}</title>\n<style>{}\n{}</style></head>\n<body>\n{}{}</body></html>\n",
      escaped(title_),
      kPageStyle,
      plots::kStyle,
      body_,
      in_pictures_ ? "</div>\n" : "");
}

}  // namespace lockstep::report
