#pragma once
// Writes SVG elements. Colours are classes, defined in kStyle, so that a picture follows the
// reader's choice of light or dark.

#include <string>
#include <string_view>

namespace lockstep::plots {

// Escapes text for HTML and XML, also within quotation marks. Control characters and bytes that are
// not UTF-8 become U+FFFD.
std::string escaped(std::string_view text);

// The width of a text in the font of the pictures, in pixels: estimated, rather too wide.
double text_width(std::string_view text, double size);

// Classes: bg (background), t and m (text, and less important text), a and g (lines of axes and
// grid), v (text over lines), h (areas that show a text to the pointer); sN, fN (lines and areas of
// colour N), faint, ring.
// The colours differ in lightness, and also for the colour-blind.
extern const char* const kStyle;
constexpr int kColours = 8;

enum class Anchor { kStart, kMiddle, kEnd };

// Collects elements. Coordinates are pixels from the upper left corner.
class Svg {
 public:
  // `css`: classes of the element, such as "t".
  void text(double x,
            double y,
            std::string_view text,
            const char* css,
            double size = 11,
            Anchor anchor = Anchor::kStart);
  void bold(double x, double y, std::string_view text, double size);
  void line(double x1, double y1, double x2, double y2, const char* css, bool dashed = false);
  // `title` is shown by the pointer; may be empty.
  void rect(double x,
            double y,
            double width,
            double height,
            const std::string& css,
            std::string_view title = {});
  // `path`: the commands of an SVG path.
  void path(const std::string& path, const std::string& css, const std::string& attributes = {});
  // A circle, square, triangle or diamond, by the number.
  void marker(int shape, double x, double y, const std::string& css, std::string_view title = {});
  void ring(double x, double y);

  const std::string& elements() const { return elements_; }

 private:
  std::string elements_;
};

// A coordinate, in tenths of a pixel: "12.3", "12".
std::string coordinate(double value);

// A complete picture. `in_page`: for an HTML page that has kStyle; otherwise a file of its own.
std::string svg_text(
    const Svg& svg, double width, double height, const std::string& title, bool in_page);

}  // namespace lockstep::plots
