#pragma once
// Names of tensors that were saved from a wrapped model: DDP puts "module." before every name,
// torch.compile "_orig_mod.", a training script "model." or "net.". FSDP and activation
// checkpointing put names of their own inside.

#include <map>
#include <set>
#include <string>
#include <vector>

namespace lockstep::checkpoint {

struct PlainNames {
  std::map<std::string, std::string> of;  // the name of each tensor of the file without prefixes
  std::string note;                       // a sentence for the log; empty if all names are the same
};

// Removes what wrappers added to `names`, the tensors of a file. `known` are names of the model; a
// file may have others, too.
//
// "_orig_mod", "_fsdp_wrapped_module" and "_checkpoint_wrapped_module" are removed anywhere, and
// so is a "module" without which the name is known. Any other prefix is removed if all names have
// it and more of them are known without it. Throws CheckpointError, which names two tensors, if
// only some names have the prefix, or if two names become the same.
PlainNames plain_names(const std::vector<std::string>& names,
                       const std::set<std::string>& known,
                       const std::string& origin);

// How the names of a file and of a model differ if they have no name in common: the prefix of the
// file's names, and a name of each that are alike.
std::string compare_names(const std::vector<std::string>& names,
                          const std::set<std::string>& known);

}  // namespace lockstep::checkpoint
