#include "launcher/plots/svg.h"

#include <fmt/core.h>

#include <array>
#include <cmath>

#include "runtime/base/json.h"

namespace lockstep::plots {

// Light: at least 3:1 against white; dark: against #16191d.
const char* const kStyle =
    ".bg{fill:#fff}.t{fill:#222}.m{fill:#555}.a{stroke:#888}.g{stroke:#e2e2e2}"
    ".v{fill:#222;stroke:#fff;stroke-width:3px;stroke-linejoin:round;paint-order:stroke}"
    ".s0{stroke:#4e79a7}.s1{stroke:#c8591a}.s2{stroke:#2b8a68}.s3{stroke:#9a4f8a}"
    ".s4{stroke:#8a7010}.s5{stroke:#3aa0b8}.s6{stroke:#b5434a}.s7{stroke:#767676}"
    ".f0{fill:#4e79a7}.f1{fill:#c8591a}.f2{fill:#2b8a68}.f3{fill:#9a4f8a}"
    ".f4{fill:#8a7010}.f5{fill:#3aa0b8}.f6{fill:#b5434a}.f7{fill:#767676}"
    ".ring{stroke:#d02020;fill:none}.faint{opacity:.4}.h{fill:transparent;stroke:none}"
    ".h:hover{fill:#8882}"
    "@media(prefers-color-scheme:dark){"
    ".bg{fill:#16191d}.t{fill:#e6e6e6}.m{fill:#a8adb3}.a{stroke:#80868d}.g{stroke:#33383e}"
    ".v{fill:#e6e6e6;stroke:#16191d}"
    ".s0{stroke:#86b3e0}.s1{stroke:#f2975a}.s2{stroke:#62c9a4}.s3{stroke:#d493c6}"
    ".s4{stroke:#d6bc55}.s5{stroke:#7fd3e6}.s6{stroke:#f0868c}.s7{stroke:#b0b0b0}"
    ".f0{fill:#86b3e0}.f1{fill:#f2975a}.f2{fill:#62c9a4}.f3{fill:#d493c6}"
    ".f4{fill:#d6bc55}.f5{fill:#7fd3e6}.f6{fill:#f0868c}.f7{fill:#b0b0b0}"
    ".ring{stroke:#ff6b6b}}";

namespace {

constexpr const char* kFont = "DejaVu Sans,Helvetica,Arial,sans-serif";

// In units of the font's size, for DejaVu Sans, the widest of the fonts.
double width_of(char c) {
  if (c == ' ' || c == '.' || c == ',' || c == ':' || c == ';') return 0.33;
  if (c == 'i' || c == 'l' || c == 'j' || c == 'I' || c == '\'' || c == '|') return 0.3;
  if (c == 'f' || c == 't' || c == 'r' || c == '(' || c == ')' || c == '/') return 0.41;
  if (c == 'm' || c == 'w' || c == 'M' || c == 'W' || c == '%' || c == '@') return 0.98;
  if (c >= 'A' && c <= 'Z') return 0.71;
  return 0.63;
}

std::string titled(const std::string& tag, const std::string& attributes, std::string_view title) {
  if (title.empty()) return fmt::format("<{} {}/>\n", tag, attributes);
  return fmt::format("<{0} {1}><title>{2}</title></{0}>\n", tag, attributes, escaped(title));
}

}  // namespace

std::string escaped(std::string_view text) {
  // A round trip through JSON makes it UTF-8.
  const std::string quoted = Json(text).dump({.replace_invalid = true});
  const auto valid = Json::parse(quoted).get<std::string>();
  std::string result;
  for (const char c : valid) {
    switch (c) {
      case '&': result += "&amp;"; break;
      case '<': result += "&lt;"; break;
      case '>': result += "&gt;"; break;
      case '"': result += "&quot;"; break;
      case '\'': result += "&#39;"; break;
      case '\n':
      case '\t': result += c; break;
      default:
        if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f)
          result += "\xef\xbf\xbd";
        else
          result += c;
    }
  }
  return result;
}

double text_width(std::string_view text, double size) {
  double width = 0;
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte < 0x80)
      width += width_of(c);
    else if (byte >= 0xe0)  // the first byte of a wide character
      width += 1;
    else if (byte >= 0xc0)
      width += 0.65;
  }
  return width * size;
}

std::string coordinate(double value) {
  const double tenths = std::round(value * 10);
  const auto whole = static_cast<int64_t>(tenths);
  if (whole % 10 == 0) return fmt::format("{}", whole / 10);
  return fmt::format("{:.1f}", tenths / 10);
}

void Svg::text(
    double x, double y, std::string_view text, const char* css, double size, Anchor anchor) {
  constexpr std::array kAnchors{"", " text-anchor=\"middle\"", " text-anchor=\"end\""};
  elements_ += fmt::format("<text x=\"{}\" y=\"{}\" font-size=\"{:g}\"{} class=\"{}\">{}</text>\n",
                           coordinate(x),
                           coordinate(y),
                           size,
                           kAnchors[static_cast<size_t>(anchor)],
                           css,
                           escaped(text));
}

void Svg::bold(double x, double y, std::string_view text, double size) {
  elements_ += fmt::format(
      "<text x=\"{}\" y=\"{}\" font-size=\"{:g}\" font-weight=\"bold\" class=\"t\">{}</text>\n",
      coordinate(x),
      coordinate(y),
      size,
      escaped(text));
}

void Svg::line(double x1, double y1, double x2, double y2, const char* css, bool dashed) {
  elements_ += fmt::format("<path d=\"M{} {}L{} {}\" class=\"{}\"{}/>\n",
                           coordinate(x1),
                           coordinate(y1),
                           coordinate(x2),
                           coordinate(y2),
                           css,
                           dashed ? " stroke-dasharray=\"5 4\"" : "");
}

void Svg::rect(double x,
               double y,
               double width,
               double height,
               const std::string& css,
               std::string_view title) {
  elements_ += titled("rect",
                      fmt::format("x=\"{}\" y=\"{}\" width=\"{}\" height=\"{}\" class=\"{}\"",
                                  coordinate(x),
                                  coordinate(y),
                                  coordinate(width),
                                  coordinate(height),
                                  css),
                      title);
}

void Svg::path(const std::string& path, const std::string& css, const std::string& attributes) {
  elements_ +=
      fmt::format("<path d=\"{}\" fill=\"none\" class=\"{}\" {}/>\n", path, css, attributes);
}

void Svg::marker(int shape, double x, double y, const std::string& css, std::string_view title) {
  constexpr double r = 3.6;
  const auto at = [&](double dx, double dy) {
    return coordinate(x + dx) + " " + coordinate(y + dy);
  };
  std::string d;
  switch (shape % 4) {
    case 0: {
      elements_ += titled(
          "circle",
          fmt::format(
              "cx=\"{}\" cy=\"{}\" r=\"{}\" class=\"{}\"", coordinate(x), coordinate(y), r, css),
          title);
      return;
    }
    case 1: d = "M" + at(-r, -r) + "L" + at(r, -r) + "L" + at(r, r) + "L" + at(-r, r) + "Z"; break;
    case 2: d = "M" + at(0, -1.3 * r) + "L" + at(1.2 * r, r) + "L" + at(-1.2 * r, r) + "Z"; break;
    default:
      d = "M" + at(0, -1.4 * r) + "L" + at(1.4 * r, 0) + "L" + at(0, 1.4 * r) + "L" +
          at(-1.4 * r, 0) + "Z";
  }
  elements_ += titled("path", fmt::format("d=\"{}\" class=\"{}\"", d, css), title);
}

void Svg::ring(double x, double y) {
  elements_ +=
      fmt::format("<circle cx=\"{}\" cy=\"{}\" r=\"8\" stroke-width=\"2\" class=\"ring\"/>\n",
                  coordinate(x),
                  coordinate(y));
}

std::string svg_text(
    const Svg& svg, double width, double height, const std::string& title, bool in_page) {
  const std::string w = coordinate(width), h = coordinate(height);
  return fmt::format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {0} {1}\" {2}font-family=\"{3}\" "
      "role=\"img\" aria-label=\"{4}\">{5}<rect width=\"{0}\" height=\"{1}\" class=\"bg\"/>\n"
      "{6}</svg>\n",
      w,
      h,
      in_page ? "" : fmt::format("width=\"{}\" height=\"{}\" ", w, h),
      kFont,
      escaped(title),
      in_page ? "" : fmt::format("<title>{}</title><style>{}</style>", escaped(title), kStyle),
      svg.elements());
}

}  // namespace lockstep::plots
