#pragma once
// The files by which a folder is known to have a tokenizer: the one list of them.

#include <array>
#include <filesystem>
#include <string>
#include <vector>

namespace lockstep {

// For messages.
inline constexpr const char* kTokenizerFiles =
    "tokenizer.json, tokenizer.model, vocab.json with merges.txt, vocab.txt, one *.tiktoken";

// All files of tokenizers, which belong together if a folder is copied.
inline constexpr std::array kAllTokenizerFiles = {"added_tokens.json",
                                                  "merges.txt",
                                                  "qwen.tiktoken",
                                                  "sentencepiece.bpe.model",
                                                  "special_tokens_map.json",
                                                  "spiece.model",
                                                  "tokenizer.json",
                                                  "tokenizer.model",
                                                  "tokenizer_config.json",
                                                  "vocab.json",
                                                  "vocab.txt"};

// The tokenizer's file in a folder, the first of kTokenizerFiles; empty if it has none. vocab.json
// counts only with merges.txt, a .tiktoken file only if there is no other one.
std::filesystem::path tokenizer_file_in(const std::filesystem::path& folder);

// A file of a tokenizer, and its name among kAllTokenizerFiles or chat_template.jinja.
struct TokenizerFile {
  std::string name;
  std::filesystem::path path;
};

// The files of the tokenizer at `path`, a folder or the tokenizer's main file, with those beside
// it. Empty if there is none.
std::vector<TokenizerFile> tokenizer_files_at(const std::filesystem::path& path);

}  // namespace lockstep
