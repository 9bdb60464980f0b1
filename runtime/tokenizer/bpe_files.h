#pragma once
// vocab.json and merges.txt: byte-level BPE of GPT-2, RoBERTa and Qwen2, in folders without
// tokenizer.json.

#include <filesystem>
#include <memory>

#include "runtime/tokenizer/tokenizer.h"

namespace lockstep::tokenizer {

// The file of merges that belongs to a vocabulary: "merges.txt" beside "vocab.json",
// "gpt2-merges.txt" beside "gpt2-vocab.json". Empty if the path has no such name, or there is no
// such file.
std::filesystem::path merges_beside(const std::filesystem::path& vocabulary);

// Opens the two files, with what tokenizer_config.json, special_tokens_map.json and
// added_tokens.json beside them say about special tokens, and with the pre-tokenizer of
// `tokenizer_class`. If that is missing or general, model_type in config.json decides. The ids are
// those of `transformers`. Throws DataError, also for classes of other kinds.
std::unique_ptr<const Tokenizer> open_bpe_files(const std::filesystem::path& vocabulary,
                                                const std::filesystem::path& merges);

}  // namespace lockstep::tokenizer
