# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
# What a shepherd and its workers say to each other over Cap'n Proto RPC. tutti/federate/message.hpp says what each
# message means, and has the same names. A change that old programs cannot read raises protocol_version there.
@0xff0d454ac2575775;

using Cxx = import "/capnp/c++.capnp";
$Cxx.namespace("tutti::federate::wire");

# What a worker finds when it connects. Each side proves that it has the key before the other says anything of the run.
# Without a key, proofs are empty, and both sides are on one machine.
interface Gate {
  knock @0 (nonce :Data) -> (nonce :Data, proof :Data);
  enter @1 (proof :Data, mailbox :Mailbox) -> (mailbox :Mailbox);
}

# Calls arrive in the order in which they are made; their results say only that they did.
interface Mailbox {
  deliver @0 (message :Message);
}

struct Message {
  union {
    hello :group {
      version @0 :UInt32;
      worker @1 :UInt64;
      run @2 :UInt64;
      lease @3 :UInt64;
      ready @4 :Bool;
      speed @5 :Float64;
      device @32 :Text;
      newest @35 :UInt64;
      held @36 :Int64 = -1;
    }
    ready :group {
      speed @6 :Float64;
      held @37 :Int64 = -1;
    }
    heartbeat :group {
      state @7 :UInt8;
      step @8 :Int64;
      cpu @33 :Float64 = -1;
      memory @34 :Int64 = -1;
      workers @43 :Int64 = 1;
    }
    ask :group {
      of @9 :UInt64;
      offset @10 :Int64;
      bytes @11 :Int64;
    }
    offer :group {
      lease @12 :UInt64;
      round @13 :Int64;
      samples @14 :Int64;
      bytes @15 :Int64;
      checksum @16 :UInt64;
      seconds @17 :Float64;
      loss @18 :Float64;
      last @38 :Bool;
    }
    leave :group {
      reason @19 :Text;
    }
    welcome @20 :Welcome;
    assign @21 :Assign;
    moved :group {
      round @39 :Int64;
      whole @40 :Bool;
      bytes @41 :Int64;
      checksum @42 :UInt64;
    }
    settled :group {
      lease @22 :UInt64;
      accepted @23 :Bool;
      reason @24 :Text;
    }
    bye :group {
      again @25 :Bool;
      failed @26 :Bool;
      reason @27 :Text;
    }
    chunk :group {
      of @28 :UInt64;
      offset @29 :Int64;
      checksum @30 :UInt64;
      bytes @31 :Data;
    }
  }
}

struct Welcome {
  run @0 :UInt64;
  parameters @1 :Int64;
  batch @2 :Int64;
  sequence @3 :Int64;
  samples @4 :Int64;
  bits @5 :UInt8;
  chunkBytes @6 :Int64;
  window @7 :Int64;
  heartbeatNs @8 :Int64;
  lostAfterNs @9 :Int64;
  program @10 :Text;
  fragments @11 :List(Int64);
  mix @12 :Float64;
}

struct Assign {
  lease @0 :UInt64;
  round @1 :Int64;
  ranges @2 :List(Range);
  checksum @3 :UInt64;
  begin @4 :Int64;
  end @5 :Int64;

  struct Range {
    first @0 :Int64;
    count @1 :Int64;
  }
}
