// Tables of texts, tagged sentences and vocab.txt of BERT: finds reads outside the text, rows that
// lack a cell, tokens that no vocabulary has.

#include <vector>

#include "fuzz_target.h"
#include "runtime/data/text/tagged_file.h"
#include "runtime/data/text/text_table.h"
#include "runtime/tokenizer/tokenizer.h"

namespace lockstep::fuzz {
namespace {

void read_table(std::string_view text, data::TextTableKind kind, const char* column, bool quotes) {
  data::TextTable table(text, "input", kind, {{"text", column}, {"label", "1"}}, quotes);
  int64_t line = 0;
  for (data::TextTableRow row; table.next(&row);) {
    table.parse(&row);
    if (row.line < line) fail("lines do not ascend");  // elements of an array may share a line
    line = row.line;
    if (row.problem.empty() && row.cells.size() != 2) fail("a row has not every cell");
  }
}

void read_sentences(std::string_view text, int64_t word, int64_t tag) {
  TaggedTextConfig config;
  config.word = word;
  config.tag = tag;
  data::SentenceReader reader(text, config);
  for (data::TaggedSentence sentence; reader.next(&sentence);) {
    if (sentence.words.size() != sentence.tags.size()) fail("a word has no tag");
    if (sentence.problem.empty() && sentence.words.empty()) fail("a sentence is empty");
  }
}

// A vocabulary, an empty line, a text.
void encode(std::string_view input) {
  const size_t end = std::min(input.find("\n\n"), input.size());
  const auto tokenizer = tokenizer::parse_bert_vocabulary(input.substr(0, end), "input");
  std::vector<uint32_t> ids;
  tokenizer->encoder()->encode(input.substr(end), /*with_special=*/true, &ids);
  for (const uint32_t id : ids)
    if (id >= tokenizer->id_limit()) fail("an id is past the limit");
}

}  // namespace

// The first byte chooses the reader.
std::vector<std::string> seed_inputs() {
  using namespace std::string_literals;
  return {"\0text,1\na,b\n\"c \"\"\",d\n\ne,f,g\n"s,
          "\1\xEF\xBB\xBF"
          "a\tb\n\" c\td\r\n"s,
          "\2{\"text\": \"a\", \"1\": 2}\n\n{\"1\": null}\n"s,
          "\3-DOCSTART- X\n\na N B-P\nb\tN\tO\n\nc\n"s,
          "\4[UNK]\n[CLS]\n[SEP]\na\n##b\n\nab \xC3\xA9 [SEP]\xFF"s};
}

}  // namespace lockstep::fuzz

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace lockstep;
  if (size < 1) return 0;
  const std::string_view text(reinterpret_cast<const char*>(data + 1), size - 1);
  fuzz::expect_errors_only([&] {
    switch (data[0] % 6) {
      case 0: return fuzz::read_table(text, data::TextTableKind::kCsv, "text", true);
      case 1: return fuzz::read_table(text, data::TextTableKind::kTsv, "0", false);
      case 2: return fuzz::read_table(text, data::TextTableKind::kJsonLines, "text", true);
      case 3: return fuzz::read_sentences(text, 0, -1);
      case 4: return fuzz::encode(text);
      default: return fuzz::read_sentences(text, 2, 0);
    }
  });
  return 0;
}
