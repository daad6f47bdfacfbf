// SPDX-License-Identifier: Apache-2.0
// The least that payments need of a token and of Permit2, for tests on a local chain. No constructor arguments
// and no immutables, so that the runtime code can be placed at the canonical addresses with anvil_setCode.
pragma solidity ^0.8.24;

library Sig {
    function ok(address who, bytes32 digest, bytes memory s) internal view returns (bool) {
        if (who.code.length > 0) {
            (bool c, bytes memory r) = who.staticcall(abi.encodeWithSelector(0x1626ba7e, digest, s));
            return c && r.length >= 32 && bytes4(abi.decode(r, (bytes32))) == bytes4(0x1626ba7e);
        }
        if (s.length != 65) return false;
        bytes32 r_; bytes32 s_; uint8 v_;
        assembly { r_ := mload(add(s, 32)) s_ := mload(add(s, 64)) v_ := byte(0, mload(add(s, 96))) }
        if (v_ < 27) v_ += 27;
        if (uint256(s_) > 0x7FFFFFFFFFFFFFFFFFFFFFFFFFFFFFFF5D576E7357A4501DDFE92F46681B20A0) return false;
        address got = ecrecover(digest, v_, r_, s_);
        return got != address(0) && got == who;
    }
}

// EIP-20 + EIP-2612 + EIP-3009, EIP-712 domain ("USDC","2"). mint() is open: test token only.
contract RigUSDC {
    string public constant name = "USDC";
    string public constant version = "2";
    string public constant symbol = "USDC";
    uint8 public constant decimals = 6;
    uint256 public totalSupply;
    mapping(address => uint256) public balanceOf;
    mapping(address => mapping(address => uint256)) public allowance;
    mapping(address => uint256) public nonces;
    mapping(address => mapping(bytes32 => bool)) public authorizationState;

    event Transfer(address indexed from, address indexed to, uint256 value);
    event Approval(address indexed owner, address indexed spender, uint256 value);
    event AuthorizationUsed(address indexed authorizer, bytes32 indexed nonce);
    event AuthorizationCanceled(address indexed authorizer, bytes32 indexed nonce);

    bytes32 public constant TRANSFER_WITH_AUTHORIZATION_TYPEHASH = keccak256("TransferWithAuthorization(address from,address to,uint256 value,uint256 validAfter,uint256 validBefore,bytes32 nonce)");
    bytes32 public constant RECEIVE_WITH_AUTHORIZATION_TYPEHASH = keccak256("ReceiveWithAuthorization(address from,address to,uint256 value,uint256 validAfter,uint256 validBefore,bytes32 nonce)");
    bytes32 public constant CANCEL_AUTHORIZATION_TYPEHASH = keccak256("CancelAuthorization(address authorizer,bytes32 nonce)");
    bytes32 public constant PERMIT_TYPEHASH = keccak256("Permit(address owner,address spender,uint256 value,uint256 nonce,uint256 deadline)");

    function DOMAIN_SEPARATOR() public view returns (bytes32) {
        return keccak256(abi.encode(
            keccak256("EIP712Domain(string name,string version,uint256 chainId,address verifyingContract)"),
            keccak256(bytes(name)), keccak256(bytes(version)), block.chainid, address(this)));
    }
    function _digest(bytes32 structHash) internal view returns (bytes32) {
        return keccak256(abi.encodePacked("\x19\x01", DOMAIN_SEPARATOR(), structHash));
    }
    function _move(address from, address to, uint256 value) internal {
        require(to != address(0), "ERC20: transfer to the zero address");
        require(balanceOf[from] >= value, "ERC20: transfer amount exceeds balance");
        unchecked { balanceOf[from] -= value; balanceOf[to] += value; }
        emit Transfer(from, to, value);
    }
    function mint(address to, uint256 value) external { totalSupply += value; balanceOf[to] += value; emit Transfer(address(0), to, value); }
    function transfer(address to, uint256 value) external returns (bool) { _move(msg.sender, to, value); return true; }
    function approve(address spender, uint256 value) external returns (bool) { allowance[msg.sender][spender] = value; emit Approval(msg.sender, spender, value); return true; }
    function transferFrom(address from, address to, uint256 value) external returns (bool) {
        uint256 a = allowance[from][msg.sender];
        if (a != type(uint256).max) { require(a >= value, "ERC20: transfer amount exceeds allowance"); allowance[from][msg.sender] = a - value; }
        _move(from, to, value); return true;
    }
    function permit(address owner, address spender, uint256 value, uint256 deadline, uint8 v, bytes32 r, bytes32 s) external {
        require(deadline >= block.timestamp, "FiatTokenV2: permit is expired");
        require(Sig.ok(owner, _digest(keccak256(abi.encode(PERMIT_TYPEHASH, owner, spender, value, nonces[owner]++, deadline))), abi.encodePacked(r, s, v)), "EIP2612: invalid signature");
        allowance[owner][spender] = value; emit Approval(owner, spender, value);
    }
    function _auth(bytes32 th, address from, address to, uint256 value, uint256 va, uint256 vb, bytes32 nonce, bytes memory sig) internal {
        require(block.timestamp > va, "FiatTokenV2: authorization is not yet valid");
        require(block.timestamp < vb, "FiatTokenV2: authorization is expired");
        require(!authorizationState[from][nonce], "FiatTokenV2: authorization is used or canceled");
        require(Sig.ok(from, _digest(keccak256(abi.encode(th, from, to, value, va, vb, nonce))), sig), "FiatTokenV2: invalid signature");
        authorizationState[from][nonce] = true;
        emit AuthorizationUsed(from, nonce);
        _move(from, to, value);
    }
    function transferWithAuthorization(address from, address to, uint256 value, uint256 validAfter, uint256 validBefore, bytes32 nonce, uint8 v, bytes32 r, bytes32 s) external {
        _auth(TRANSFER_WITH_AUTHORIZATION_TYPEHASH, from, to, value, validAfter, validBefore, nonce, abi.encodePacked(r, s, v));
    }
    function transferWithAuthorization(address from, address to, uint256 value, uint256 validAfter, uint256 validBefore, bytes32 nonce, bytes memory signature) external {
        _auth(TRANSFER_WITH_AUTHORIZATION_TYPEHASH, from, to, value, validAfter, validBefore, nonce, signature);
    }
    function receiveWithAuthorization(address from, address to, uint256 value, uint256 validAfter, uint256 validBefore, bytes32 nonce, bytes memory signature) external {
        require(to == msg.sender, "FiatTokenV2: caller must be the payee");
        _auth(RECEIVE_WITH_AUTHORIZATION_TYPEHASH, from, to, value, validAfter, validBefore, nonce, signature);
    }
    function cancelAuthorization(address authorizer, bytes32 nonce, bytes memory signature) external {
        require(!authorizationState[authorizer][nonce], "FiatTokenV2: authorization is used or canceled");
        require(Sig.ok(authorizer, _digest(keccak256(abi.encode(CANCEL_AUTHORIZATION_TYPEHASH, authorizer, nonce))), signature), "FiatTokenV2: invalid signature");
        authorizationState[authorizer][nonce] = true; emit AuthorizationCanceled(authorizer, nonce);
    }
}

interface IERC20Move { function transferFrom(address, address, uint256) external returns (bool); }
interface IERC2612 { function permit(address, address, uint256, uint256, uint8, bytes32, bytes32) external; }

struct TokenPermissions { address token; uint256 amount; }
struct PermitTransferFrom { TokenPermissions permitted; uint256 nonce; uint256 deadline; }
struct SignatureTransferDetails { address to; uint256 requestedAmount; }

// SignatureTransfer half of Permit2 (witness variant), same EIP-712 shape, bitmap nonces and errors.
contract RigPermit2 {
    error InvalidNonce();
    error SignatureExpired(uint256 signatureDeadline);
    error InvalidAmount(uint256 maxAmount);
    error InvalidSigner();
    mapping(address => mapping(uint256 => uint256)) public nonceBitmap;
    function DOMAIN_SEPARATOR() public view returns (bytes32) {
        return keccak256(abi.encode(keccak256("EIP712Domain(string name,uint256 chainId,address verifyingContract)"), keccak256("Permit2"), block.chainid, address(this)));
    }
    function permitWitnessTransferFrom(PermitTransferFrom calldata permit, SignatureTransferDetails calldata d, address owner, bytes32 witness, string calldata witnessTypeString, bytes calldata signature) external {
        if (block.timestamp > permit.deadline) revert SignatureExpired(permit.deadline);
        if (d.requestedAmount > permit.permitted.amount) revert InvalidAmount(permit.permitted.amount);
        { // consume the unordered nonce
            uint256 bit = 1 << (permit.nonce & 0xff); uint256 w = permit.nonce >> 8;
            uint256 flipped = nonceBitmap[owner][w] ^= bit;
            if (flipped & bit == 0) revert InvalidNonce();
        }
        bytes32 th = keccak256(abi.encodePacked("PermitWitnessTransferFrom(TokenPermissions permitted,address spender,uint256 nonce,uint256 deadline,", witnessTypeString));
        bytes32 tp = keccak256(abi.encode(keccak256("TokenPermissions(address token,uint256 amount)"), permit.permitted.token, permit.permitted.amount));
        bytes32 sh = keccak256(abi.encode(th, tp, msg.sender, permit.nonce, permit.deadline, witness));
        if (!Sig.ok(owner, keccak256(abi.encodePacked("\x19\x01", DOMAIN_SEPARATOR(), sh)), signature)) revert InvalidSigner();
        require(IERC20Move(permit.permitted.token).transferFrom(owner, d.to, d.requestedAmount), "TRANSFER_FROM_FAILED");
    }
    event UnorderedNonceInvalidation(address indexed owner, uint256 word, uint256 mask);
    function invalidateUnorderedNonces(uint256 wordPos, uint256 mask) external {
        nonceBitmap[msg.sender][wordPos] |= mask;
        emit UnorderedNonceInvalidation(msg.sender, wordPos, mask);
    }
}

struct Permit2612 { uint256 value; uint256 deadline; bytes32 r; bytes32 s; uint8 v; }

abstract contract RigProxyBase {
    RigPermit2 public constant PERMIT2 = RigPermit2(0x000000000022D473030F116dDEE9F6B43aC78BA3);
    event Settled();
    event SettledWithPermit();
    error InvalidDestination(); error InvalidOwner(); error PaymentTooEarly(); error InvalidAmount(); error Permit2612AmountMismatch();
    function _run(PermitTransferFrom calldata p, uint256 amount, address owner, address to, uint256 validAfter, bytes32 wh, string memory ws, bytes calldata sig) internal {
        if (amount == 0) revert InvalidAmount();
        if (owner == address(0)) revert InvalidOwner();
        if (to == address(0)) revert InvalidDestination();
        if (block.timestamp < validAfter) revert PaymentTooEarly();
        PERMIT2.permitWitnessTransferFrom(p, SignatureTransferDetails(to, amount), owner, wh, ws, sig);
    }
    function _permit(Permit2612 calldata q, PermitTransferFrom calldata p, address owner) internal {
        if (q.value != p.permitted.amount) revert Permit2612AmountMismatch();
        try IERC2612(p.permitted.token).permit(owner, address(PERMIT2), q.value, q.deadline, q.v, q.r, q.s) {} catch {}
    }
}

contract RigExactProxy is RigProxyBase {
    struct Witness { address to; uint256 validAfter; }
    string public constant WITNESS_TYPE_STRING = "Witness witness)TokenPermissions(address token,uint256 amount)Witness(address to,uint256 validAfter)";
    bytes32 public constant WITNESS_TYPEHASH = keccak256("Witness(address to,uint256 validAfter)");
    function settle(PermitTransferFrom calldata permit, address owner, Witness calldata witness, bytes calldata signature) public {
        _run(permit, permit.permitted.amount, owner, witness.to, witness.validAfter, keccak256(abi.encode(WITNESS_TYPEHASH, witness.to, witness.validAfter)), WITNESS_TYPE_STRING, signature);
        emit Settled();
    }
    function settleWithPermit(Permit2612 calldata permit2612, PermitTransferFrom calldata permit, address owner, Witness calldata witness, bytes calldata signature) external {
        _permit(permit2612, permit, owner);
        _run(permit, permit.permitted.amount, owner, witness.to, witness.validAfter, keccak256(abi.encode(WITNESS_TYPEHASH, witness.to, witness.validAfter)), WITNESS_TYPE_STRING, signature);
        emit SettledWithPermit();
    }
}

contract RigUptoProxy is RigProxyBase {
    struct Witness { address to; address facilitator; uint256 validAfter; }
    error UnauthorizedFacilitator(); error AmountExceedsPermitted();
    string public constant WITNESS_TYPE_STRING = "Witness witness)TokenPermissions(address token,uint256 amount)Witness(address to,address facilitator,uint256 validAfter)";
    bytes32 public constant WITNESS_TYPEHASH = keccak256("Witness(address to,address facilitator,uint256 validAfter)");
    function _go(PermitTransferFrom calldata p, uint256 amount, address owner, Witness calldata w, bytes calldata sig) internal {
        if (amount > p.permitted.amount) revert AmountExceedsPermitted();
        if (msg.sender != w.facilitator) revert UnauthorizedFacilitator();
        _run(p, amount, owner, w.to, w.validAfter, keccak256(abi.encode(WITNESS_TYPEHASH, w.to, w.facilitator, w.validAfter)), WITNESS_TYPE_STRING, sig);
    }
    function settle(PermitTransferFrom calldata permit, uint256 amount, address owner, Witness calldata witness, bytes calldata signature) external {
        _go(permit, amount, owner, witness, signature);
        emit Settled();
    }
    function settleWithPermit(Permit2612 calldata permit2612, PermitTransferFrom calldata permit, uint256 amount, address owner, Witness calldata witness, bytes calldata signature) external {
        _permit(permit2612, permit, owner);
        _go(permit, amount, owner, witness, signature);
        emit SettledWithPermit();
    }
}

// tryAggregate half of Multicall3: the facilitator's diagnostics call it at 0xcA11...CA11.
contract RigMulticall {
    struct Call { address target; bytes callData; }
    struct Result { bool success; bytes returnData; }
    function tryAggregate(bool requireSuccess, Call[] calldata calls) external payable returns (Result[] memory out) {
        out = new Result[](calls.length);
        for (uint256 i; i < calls.length; ++i) {
            (bool s, bytes memory r) = calls[i].target.call(calls[i].callData);
            require(s || !requireSuccess, "Multicall3: call failed");
            out[i] = Result(s, r);
        }
    }
}
