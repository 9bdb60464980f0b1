
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <optional>
#include <vector>

#include "models/huggingface/folder.h"
#include "models/huggingface/open_config.h"
#include "models/huggingface/peft.h"
#include "runtime/base/error.h"
#include "runtime/base/file.h"
#include "runtime/base/file_kind.h"
#include "runtime/base/names.h"
#include "runtime/base/text.h"
#include "runtime/base/tokenizer_files.h"
#include "runtime/checkpoint/format/state.h"

namespace lockstep::huggingface {
namespace fs = std::filesystem;
namespace {

// The files and folders of a folder that are not hidden, sorted; empty if it cannot be read.
std::vector<std::string> names_in(const fs::path& folder) {
  std::vector<std::string> names;
  std::error_code error;
  for (fs::directory_iterator at(folder, error), end; !error && at != end; at.increment(error))
    if (const std::string name = at->path().filename().string(); !is_hidden(name))
      names.push_back(name);
  std::ranges::sort(names);
  return names;
}

// The first name with this suffix; empty if there is none.
std::string first_with(const std::vector<std::string>& names, std::string_view suffix) {
  const auto found = std::ranges::find_if(
      names, [&](const std::string& name) { return has_suffix(name, suffix); });
  return found == names.end() ? "" : *found;
}

std::optional<Json> json_of(const fs::path& file) {
  if (!is_file(file)) return std::nullopt;
  try {
    return read_json(file);
  } catch (const ConfigError&) {
    return std::nullopt;
  }
}

// A member of an object as text; empty if there is none.
std::string member(const std::optional<Json>& json, const char* name) {
  const Json* const value =
      json && json->kind() == Json::Kind::kObject ? json->find(name) : nullptr;
  if (value == nullptr || value->is_null()) return "";
  return value->is_string() ? value->get<std::string>() : value->dump({.ascii = true});
}

std::string adapter(const fs::path& folder) {
  const std::optional<Json> json = json_of(folder / kAdapterConfig);
  const std::string base = member(json, "base_model_name_or_path");
  const std::string type = member(json, "peft_type");
  if (!type.empty() && type != "LORA")
    return fmt::format("is a PEFT adapter of type {}, not a model; give a model's folder", type);
  return fmt::format(
      "is a PEFT adapter{}, not a model; set model.from to the folder of the base model, and "
      "adapter {{ lora {{ from: \"{}\" rank: {} alpha: {} }} }}",
      base.empty() ? "" : fmt::format(" for the base model '{}'", base),
      folder.string(),
      member(json, "r").empty() ? "R" : member(json, "r"),
      member(json, "lora_alpha").empty() ? "ALPHA" : member(json, "lora_alpha"));
}

std::string sentence_transformers(const fs::path& folder, const std::vector<std::string>& names) {
  for (const std::string& name : names)
    if (is_model_folder(folder / name))
      return fmt::format(
          "is a sentence-transformers folder whose transformer is in its folder {}; give '{}'",
          name,
          (folder / name).string());
  return "is a sentence-transformers folder without the config.json of its transformer; allowed: "
         "a folder with a config.json";
}

std::string weights_only_python_reads(const fs::path& folder, const std::string& file) {
  const std::string to_folder = fmt::format(
      "AutoModel.from_pretrained({}{{}}).save_pretrained(NEW_FOLDER)", in_quotes(folder.string()));
  const auto call = [&](const std::string& option) {
    return fmt::format(fmt::runtime(to_folder), option);
  };
  if (has_suffix(file, ".gguf"))
    return fmt::format("has {}, a GGUF file, but no model.safetensors; convert it: {}",
                       file,
                       call(fmt::format(", gguf_file={}", in_quotes(file))));
  if (has_suffix(file, ".h5") || has_suffix(file, ".msgpack")) {
    const bool flax = has_suffix(file, ".msgpack");
    return fmt::format(
        "has {}, weights of {}, but no model.safetensors; convert it with "
        "transformers 4: {}",
        file,
        flax ? "Flax" : "TensorFlow",
        call(flax ? ", from_flax=True" : ", from_tf=True"));
  }
  return fmt::format(
      "has {}, which only Python can read, but no model.safetensors; write one with transformers: "
      "{}",
      file,
      call(""));
}

constexpr std::array kOtherWeights = {
    "pytorch_model.bin", "pytorch_model.bin.index.json", "tf_model.h5", "flax_model.msgpack"};

// A file with weights in another format; empty if there is none.
std::string other_weights(const fs::path& folder, const std::vector<std::string>& names) {
  for (const char* name : kOtherWeights)
    if (is_there(folder / name)) return name;
  for (const char* suffix : {".gguf", ".pt", ".pth", ".bin", ".ckpt", ".h5", ".msgpack"})
    if (const std::string name = first_with(names, suffix); !name.empty()) return name;
  return "";
}

std::string checkpoint(const fs::path& folder, const char* what) {
  return fmt::format(
      "is {} of Lockstep, not a model's folder; to go on training use --resume {}, to start from "
      "its weights write a file first: lockstep export {} --out FILE.safetensors, and set "
      "train.init_from to it",
      what,
      folder.string(),
      folder.string());
}

std::string folder_instead(const fs::path& folder) {
  const std::vector<std::string> names = names_in(folder);
  if (is_there(folder / kAdapterConfig)) return adapter(folder);
  if (is_there(folder / "model_index.json"))
    return fmt::format(
        "is a diffusers pipeline{}, which is not supported; export its network as an ONNX file, "
        "and use model.onnx",
        member(json_of(folder / "model_index.json"), "_class_name").empty()
            ? ""
            : fmt::format(" ({})", member(json_of(folder / "model_index.json"), "_class_name")));
  if (is_there(folder / "modules.json")) return sentence_transformers(folder, names);
  if (is_there(folder / checkpoint::kStateFile)) return checkpoint(folder, "a checkpoint");
  if (is_folder(folder / "checkpoints") || !first_with(names, "config.textproto").empty())
    return checkpoint(folder, "a run folder");
  if (is_there(folder / "params.json") && !first_with(names, ".pth").empty())
    return "is a model of Meta's own format (params.json, .pth), not of Hugging Face's; convert it "
           "with transformers: python -m transformers.models.llama.convert_llama_weights_to_hf";
  if (const std::string file = first_with(names, ".onnx"); !file.empty())
    return fmt::format("has {}, an ONNX file, but no {}; use model {{ onnx {{ file: {} }} }}",
                       file,
                       kConfigFile,
                       in_quotes((folder / file).string()));
  if (const std::string file = first_with(names, ".safetensors"); !file.empty())
    return fmt::format(
        "has {} but no {}; fetch the {} of that model, or describe the model in its section and "
        "set train.init_from to '{}'",
        file,
        kConfigFile,
        kConfigFile,
        (folder / file).string());
  if (const std::string file = other_weights(folder, names); !file.empty())
    return fmt::format(
        "{}; it has no {} either", weights_only_python_reads(folder, file), kConfigFile);
  if (is_folder(folder / "snapshots"))
    for (const std::string& name : names_in(folder / "snapshots"))
      if (is_model_folder(folder / "snapshots" / name))
        return fmt::format("is a folder of the hub's cache; give '{}'",
                           (folder / "snapshots" / name).string());
  for (const std::string& name : names)
    if (is_model_folder(folder / name))
      return fmt::format("has no {}, but its folder {} has one; give '{}'",
                         kConfigFile,
                         name,
                         (folder / name).string());
  if (const fs::path file = tokenizer_file_in(folder); !file.empty())
    return fmt::format("has a tokenizer ({}) but no model; give a folder with a {}",
                       file.filename().string(),
                       kConfigFile);
  if (!first_with(names, ".distcp").empty())
    return fmt::format(
        "is a distributed checkpoint of PyTorch, which only Python can read; join it: python -m "
        "torch.distributed.checkpoint.format_utils dcp_to_torch {} FILE.pt, and write its tensors "
        "with safetensors.torch.save_file",
        folder.string());
  if (is_there(folder / "zero_to_fp32.py"))
    return fmt::format(
        "is a checkpoint of DeepSpeed, which only Python can read; join it: python {} {} "
        "NEW_FOLDER --safe_serialization, and copy the model's {} there",
        (folder / "zero_to_fp32.py").string(),
        folder.string(),
        kConfigFile);
  if (names.empty()) return "is an empty folder; give a folder with a config.json";
  return fmt::format("is a folder without a {} (it has {}{}); if it was downloaded, fetch it again",
                     kConfigFile,
                     names.front(),
                     names.size() > 1 ? fmt::format(" and {} more", names.size() - 1) : "");
}

}  // namespace

std::string download_remedy(const std::string& path) {
  for (const char* suffix :
       {".safetensors", ".pt", ".pth", ".bin", ".ckpt", ".onnx", ".gguf", ".json"})
    if (has_suffix(path, suffix)) return "";
  const size_t slash = path.find('/'), colon = path.find("://");
  if (colon == std::string::npos && (path.find('/', slash + 1) < path.size() ||
                                     path.find_first_of("./~") == 0 || slash + 1 == path.size()))
    return "";
  if (colon == std::string::npos && slash < path.size() && is_there(path.substr(0, slash)))
    return "";
  return fmt::format("; a model of the hub is downloaded first: hf download {} --local-dir FOLDER",
                     colon == std::string::npos ? path : "NAME");
}

std::string what_it_is_instead(const fs::path& path) {
  if (is_folder(path)) return folder_instead(path);
  if (!is_there(path))
    return "does not exist; give a folder with a config.json" + look_alike_hint(path.string()) +
           download_remedy(path.string());
  const std::string begin = begin_of_file(path.string());
  const std::string kind(file_kind(begin).id);
  if (kind == "safetensors" && path.filename() != kConfigFile)
    return is_model_folder(path.parent_path())
               ? fmt::format("is a file of weights, not a folder; give its folder '{}'",
                             path.parent_path().string())
               : "is a file of weights, not a folder with a config.json; describe the model in its "
                 "section, and set train.init_from to the file";
  if (path.filename() == kConfigFile)
    return fmt::format("is a file; give its folder '{}'", path.parent_path().string());
  return is_not(begin, "a folder with a config.json");
}

std::string weights_instead(const fs::path& folder) {
  const std::vector<std::string> names = names_in(folder);
  if (is_there(folder / "adapter_model.safetensors") || is_there(folder / kAdapterConfig))
    return adapter(folder);
  if (const std::string file = other_weights(folder, names); !file.empty())
    return weights_only_python_reads(folder, file);
  const std::string file = first_with(names, ".safetensors");
  return fmt::format(
      "has neither model.safetensors nor model.safetensors.index.json{}; allowed: a folder as "
      "save_pretrained writes it",
      file.empty() ? "" : fmt::format(", only {}", file));
}

}  // namespace lockstep::huggingface
