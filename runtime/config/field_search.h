#pragma once
// The fields of the config that somebody means who writes a flag of another program.

#include <string>
#include <string_view>
#include <vector>

namespace lockstep::config {

struct FieldMatch {
  std::string path;  // "train.epochs"; of a section, "optimizer.adamw"
  // What the name itself says: "BF16" for --bf16, "{}" for a section; "VALUE" if the field cannot
  // have the flag's value.
  std::string value;
  std::string but;  // how the field differs from what the name means elsewhere, in a sentence
  bool excluded;    // by the sections that the config has: model.gpt.context, if it has model.mlp
  enum class Kind { kText, kNumber, kSwitch, kName } kind;  // of its values
};

// The fields that `flag` ("--learning-rate", "--train.epochs", "--bf16", "--no-shuffle") names: by
// path or name, by the names that other programs use, or by one of their values. `value` is the
// flag's, or empty. `config`, the text of a config, decides between sections that exclude each
// other; it may be empty or wrong. Empty if no field has the name, or too many.
std::vector<FieldMatch> fields_named_by(std::string_view flag,
                                        std::string_view value,
                                        const std::string& config);

// The same for a name that is misspelt.
std::vector<FieldMatch> fields_named_nearly(std::string_view flag,
                                            std::string_view value,
                                            const std::string& config);

// "--Learning-Rate" and "learning_rate" have one form: "learning_rate".
std::string plain_flag(std::string_view flag);

// The candidate that is most similar to `name`, with about one wrong letter in six; empty if none
// is.
std::string nearest(std::string_view name, const std::vector<std::string>& candidates);

// Whether `list`, words separated by blanks, has the word.
bool has_word(const std::string& list, const std::string& word);

}  // namespace lockstep::config
