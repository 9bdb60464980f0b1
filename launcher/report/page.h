#pragma once
// Writes an HTML page that stands alone: its style and pictures are in it, and nothing is loaded.
// The text is well-formed XML, too. All texts that are passed in are escaped.

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "launcher/plots/picture.h"

namespace lockstep::report {

struct Tile {
  std::string name, value;
};

using Row = std::vector<std::string>;

class Page {
 public:
  // The heading, and a line below it.
  Page(const std::string& title, const std::string& subtitle);

  void section(std::string_view title);
  void paragraph(std::string_view text);
  void note(std::string_view text);  // less important
  void tiles(const std::vector<Tile>& tiles);
  // Cells after the first `left` columns are numbers, at the right. No rows: nothing is written.
  void table(const Row& header, const std::vector<Row>& rows, size_t left = 1);
  // Pictures that follow each other stand side by side if the window is wide enough.
  void picture(const plots::Picture& picture);
  // A file's picture, as it is. `description`: for those who do not see it.
  void image(const std::string& svg, std::string_view description);
  // A text that is folded away.
  void details(std::string_view summary, std::string_view text);

  std::string html() const;

 private:
  void end_pictures();

  std::string title_, body_;
  bool in_pictures_ = false;
};

}  // namespace lockstep::report
